"""Tasks that wait for others: batches, and keys of which only one task is left.

Pure: each is asked with the time, by whoever owns it, and waits for nothing. Not for use by several
threads at once.
"""
