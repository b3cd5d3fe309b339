"""The operator of a subscription, which takes, starts and completes tasks.

The limits (`rate_limiter`, `key_quota`) have no side effects: the loop that owns the partition
passes the time as an argument, and no method blocks. They are not thread-safe.
"""
