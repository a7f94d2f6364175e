"""Puts a pipeline together from its configuration, runs it, and answers the commands."""
