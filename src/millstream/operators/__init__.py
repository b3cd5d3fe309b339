"""Operators: the run-time code of nodes, which process and emit batches of records.

An operator belongs to one task, sees the records of its node in Kafka Streams' depth-first order,
and never accesses Kafka, Spark or the system clock. `runtime.task.compile_operator` creates the
operators of a topology; `operator` is their interface to the engine.

Calls are expensive in Python, so an operator takes and emits a `Batch` (`record_batch`) of parallel
lists, with the results of record-by-record processing. Each record has the row of its input record,
where offset, partition and headers are looked up on demand. Where paths of the topology meet again,
records also have depth-first positions; nodes that share a store get single records or form a
group. `result_records` builds the emitted batches.

User functions are called through `map()` into a list (`user_calls`): if one raises, the length of
the list is the index of the failed record, so only that record is dropped, and no function is
called twice for a record. `record_filters` drops records that an operator cannot process.

- `stateless`, `arrow` and `process` run user functions and processors of streams.
- `aggregates`: aggregations of streams by key, window and session. `tables`: sources, aggregations,
  transformations and suppression of tables, and access to the rows of other tables
  (`value_getter`). `joins`: joins of streams and tables. All work on the objects of a record cache,
  or without one read, write and log every update.
- `concurrent`: operators that emit their results later.
- `origin_header` adds the origin of records that are written to the lake.
"""
