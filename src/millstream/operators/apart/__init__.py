"""Operators whose work on a record goes on beside the loop: it may wait, many at a time."""
