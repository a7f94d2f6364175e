"""What collections look like: from a mapping, from documents, from the table."""
