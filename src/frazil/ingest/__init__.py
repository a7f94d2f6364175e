"""From a source to published epochs: the loop, the write job, the search for older rows, quarantine."""
