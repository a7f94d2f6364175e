"""Reads data files as a table's schema sees them, deleted rows left out."""
