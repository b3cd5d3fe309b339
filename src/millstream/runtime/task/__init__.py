"""Stream tasks: from queued records to outputs.

`build_task` builds a `stream_task` from a sub-topology. Its parts, in the order of a record:

- `queues`: fetched records are deserialized and chosen in Kafka Streams' order.
- `executor`: a batch passes the sub-topology one operator at a time. `compile_operator` creates the
  operators, and `steps` finds the nodes that must process single records because they share a
  store. `node_context` and `task_processing` are the services that operators use.
- `sinks` and `collector`: outputs are serialized as lists and passed to the producer.
- `punctuations`: punctuators run after a batch by stream time, and each round by wall clock.
- `commit_barrier` and `commit_metadata`: whether a commit waits for records in flight, and what it
  stores with the offsets.

`error_handling` calls exception handlers, `time_limits` keeps batches short when user code is slow,
`task_meters` counts, and `retention_check` warns about changelogs that do not keep old records.

The result is always that of record-at-a-time, depth-first processing.
"""
