"""Rows that are gone: deletion vectors, position deletes, and what both say of a data file."""
