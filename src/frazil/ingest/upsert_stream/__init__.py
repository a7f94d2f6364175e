"""A DataFrame of changes, published from foreachBatch with the same guarantees."""
