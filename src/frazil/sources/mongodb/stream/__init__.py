"""The change stream, read into segments on disk."""
