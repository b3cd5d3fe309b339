"""State stores, built from layers.

`stores` creates store builders (`builders`). `task_stores` opens the stores of a task (`opening`),
restores, commits and closes them; `store_metrics` measures them. An open store consists of layers:
the stored bytes at the bottom (`storage`), the changelog layer above (`changelogs`), an optional
record cache (`caches`), and on top two interfaces: one for processors, with objects as keys and
values, and a *table* for the DSL's operators, with serialized keys and batches (`keyvalue`,
`windows`, `versioned`, `buffers`). `queries` reads stores for interactive queries. `directories`
manages the state directory on disk. `engine_failures` records failures that user code may hide.

- A store contains the changelog offset that it reflects: data and offset are written in one
  RocksDB batch. Restoration reads only the records after that offset.
- Writes since the last commit are only in memory (`storage/overlay.py`), so the state on disk
  always corresponds to a commit. After a crash between the steps of a commit, work is repeated, but
  nothing is lost. To abort a transaction, the stores are closed and reopened.
- Stateful operators work on the record cache (objects by serialized key) or, without caching, read,
  write and log every update.
- State that cannot be trusted (corrupted files, a changelog that no longer contains the offset) is
  deleted and restored.

Packages import only earlier ones in this list: storage, changelogs, caches, builders,
`queries.requests` and keyvalue, then windows, versioned and buffers, then queries and opening.
"""
