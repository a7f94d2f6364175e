"""Documents and ids, to Arrow columns."""
