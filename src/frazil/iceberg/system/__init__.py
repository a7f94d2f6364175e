"""Tables of our own in the namespace `_frazil`."""
