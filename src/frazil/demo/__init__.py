"""Everything `frazil demo` needs that a real installation gets from a database: a workload and its changefeed."""
