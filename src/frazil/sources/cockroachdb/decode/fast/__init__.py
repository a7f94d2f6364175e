"""Shortcuts for lines that look alike: whole columns at once."""
