"""What an application remembers: state stores, layer upon layer.

Bytes lie in RocksDB or in memory, uncommitted writes in an overlay above, changes go to the
changelog, a record cache holds the latest values as objects, and typed stores are what processors
see. `task_stores` has all stores of a task, `directory` where they are on disk, `restore` how they
come back from their changelogs.
"""
