"""Writes one window: schemas first, then one Spark job for all tables."""
