"""Files on every storage, opened for reading and writing."""
