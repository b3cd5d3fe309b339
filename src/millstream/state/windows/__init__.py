"""Window and session stores.

`window_store` and `session_store` are what processors see, `window_table` and `session_table` what
the DSL's operators use, `window_cache` the record cache between those and the bytes. Below,
`memory_windows` keeps windows in memory, `segmented_windows` in RocksDB, `time_index` there in the
order of time. `window_keys` are the keys of both; `key_index` and `time_table` find them.
"""
