"""Changes that cannot be taken, the later changes of their keys, and how they are replayed."""
