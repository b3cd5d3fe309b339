"""Where the bytes of a store lie: in memory or in RocksDB, committed or not yet."""
