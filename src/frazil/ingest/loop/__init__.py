"""The running pipeline: which tables are read together, what is published next, what a table in trouble does."""
