"""Connections to a deployment, and what it says of itself."""
