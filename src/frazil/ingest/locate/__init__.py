"""Finds the older rows of an epoch's keys, at the head it is committed on."""
