"""Everything that is committed to a table: staged by iceberg-java, sent once."""
