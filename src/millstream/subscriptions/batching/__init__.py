"""Processors that hold tasks: batching, and compaction to one task per key.

The windows have no side effects: callers pass the time as an argument, and no method blocks. They
are not thread-safe.
"""
