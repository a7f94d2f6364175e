"""The first load: ranges of `_id`, resumable."""
