"""Window and session stores.

`window_store` and `session_store` are the interfaces for processors, `window_table` and
`session_table` those for the DSL's operators, `window_cache` is the record cache below them. Below,
`memory_windows` keeps windows in memory and `segmented_windows` in RocksDB, where `time_index` adds
an index by time; `duplicate_windows` are both for stream joins. `window_keys` defines the stored
keys; `key_index`, `time_table` and `duplicate_table` look them up.
"""
