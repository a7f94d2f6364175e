"""Lines, keys and values of a changefeed, to Arrow columns."""
