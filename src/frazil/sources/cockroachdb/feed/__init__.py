"""The files of a changefeed: where they lie, how they are named, which come next."""
