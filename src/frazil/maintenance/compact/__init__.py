"""Rewrites small files, and files whose rows are out of order, into few good ones."""
