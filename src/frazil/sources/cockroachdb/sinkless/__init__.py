"""A changefeed over SQL, kept in files of the same names until it is published."""
