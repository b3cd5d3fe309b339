"""Where bytes lie: in memory and in RocksDB.

`bytes_store` and `timed_store` say what the layers of a store speak. `memory`, `lru` and `overlay`
(writes that are not committed yet, above a storage) are lowest writable layers. `storages` opens
what keeps committed data and tells how it fails; `rocksdb` is what does on a real disk.
`value_formats` says how values lie with their timestamps, `iterators` what iterations over stores
are; `sorted_keys` and `java_hash_order` are orders of keys.
"""
