"""READ: each source lists what is resolved, hands out splits, reads them in tasks and decodes payloads to Arrow."""
