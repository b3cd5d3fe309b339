"""Window and session stores.

`window_store` and `session_store` are the interfaces for processors, `window_table` and
`session_table` those for the DSL's operators, and `window_cache` is the record cache below them. In
the lowest layer, `memory_windows` stores windows in memory and `segmented_windows` in RocksDB,
where `time_index` adds an index by time; `duplicate_windows` contains both variants for stream
joins. `window_keys` defines the stored keys; `key_index`, `time_table` and `duplicate_table` look
them up.
"""
