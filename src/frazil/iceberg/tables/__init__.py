"""Tables as metadata: made, read, evolved; their heads, files and manifests."""
