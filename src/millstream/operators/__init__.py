"""Operators, which execute the nodes of a topology.

They process and emit batches of records.

An operator belongs to one task and receives the records of its node in Kafka Streams' depth-first
order. It never accesses Kafka, Spark or the system clock. `runtime.task.compile_operator` creates
the operators of a topology; `operator` defines the interface between operators and the engine.

Function calls are expensive in Python, so an operator takes and emits a `Batch` (`record_batch`),
which consists of parallel lists. The results are the same as if records were processed one by one.
Each record refers to the row of its input record, from which its offset, partition and headers are
looked up on demand. Where paths of the topology meet again, records also have depth-first
positions. Nodes that share a store receive single records or form a group. `result_records` builds
the emitted batches.

User functions are called through `map()` into a list (`user_calls`). If a function raises, the
length of the list is the index of the failed record, so only that record is dropped, and no
function is called twice for a record. `record_filters` drops records that an operator cannot
process.

- `stateless`, `arrow` and `process` run user functions and processors of streams.
- `aggregates`: aggregations of streams by key, window and session. `tables`: sources, aggregations,
  transformations and suppression of tables, and access to the rows of other tables
  (`value_getter`). `joins`: joins of streams and tables. With a record cache, these operators work
  on cached objects; without one, they read, write and log every update.
- `concurrent`: operators that emit their results later.
- `origin_header` adds a header with the record's origin to records that are written to the lake.
"""
