"""Finds the older rows of an epoch's keys: in which live data file, at which position.

    data file --reading--> key columns --keys--> Keys --index--> KeyIndex --cache--> memory-mapped file on local disk
                                                                    |
    the epoch's keys ----------------------------- find -----------+--> positions
                                                                            |
                                  vectors (v3: Puffin) or positions (v2: Parquet) <-- merged with older deletes

keys       a key of any type as exact bytes and a 64-bit hash (key_hash); equal hashes are verified on the bytes
index      one data file's keys, sorted, with their positions
reading    key columns and whole rows of any Parquet data file, bound by field id
cache      indexes on disk: thrown away at will, never wrong, because a data file never changes
vectors    deletion vectors and the Puffin files that hold them
positions  position delete files
"""
