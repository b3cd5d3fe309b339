"""Stores of bytes, in memory and in RocksDB.

`bytes_store` and `timed_store` define the protocols of store layers. `memory`, `lru` and `overlay`
(uncommitted writes above a storage) are the lowest writable layers. `storages` defines the factory
protocol of storages for committed data, and their errors; `rocksdb` implements them on disk.
`value_formats` defines how values are stored with timestamps, `iterators` how stores are iterated;
`sorted_keys` and `java_hash_order` order keys. `write_check` verifies in tests that no write
reaches the disk before its results are delivered.
"""
