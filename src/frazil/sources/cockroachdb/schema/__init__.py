"""What a changefeed's tables look like, and who told it."""
