"""Measurements beside what a user would use instead. `make bench`; ratios count, seconds depend on the machine."""
