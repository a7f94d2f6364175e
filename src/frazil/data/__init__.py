"""Rows as Arrow and Parquet: types, keys, deletes, files. Neither Spark nor a JVM is needed here."""
