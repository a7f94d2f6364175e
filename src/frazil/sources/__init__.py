"""READ: each source lists what is resolved, hands out partitions, reads them in tasks and decodes payloads to Arrow."""
