"""The daemon's page, its metrics and its endpoints."""
