"""Processors that hold tasks: batching, and compaction to one task per key.

The windows are free of side effects: their owner passes the time as an argument, and nothing
blocks. They are not thread-safe.
"""
