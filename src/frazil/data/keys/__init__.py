"""Keys of rows: exact codes, hashes, and the index that finds a key's row in the files of a table."""
