"""Compaction in an order: by columns, or along a z-order curve."""
