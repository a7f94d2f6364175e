"""Examines tables for what should never be, says what to do, and repairs it where asked."""
