"""Turns equality deletes into deletion vectors."""
