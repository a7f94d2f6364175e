"""Changefeed files that are no JSON lines: CSV and Parquet."""
