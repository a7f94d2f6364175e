"""Catalogs of every kind: their settings, how they are opened, what they can do."""
