"""Aggregations of streams: by key, by window, by session."""
