"""Keeps tables small and fast to read: convert, compact, expire, delete orphans; what is planned is pure."""
