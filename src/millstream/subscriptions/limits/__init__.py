"""What keeps tasks back: the rate of a partition, the quota of a key, keys that are ignored.

Pure: each is asked with the time, by the loop that owns the partition, and waits for nothing. Not
for use by several threads at once.
"""
