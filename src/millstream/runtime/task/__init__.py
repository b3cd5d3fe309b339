"""Stream tasks: from queued records to outputs.

`build_task` builds a `stream_task` from a sub-topology. Its parts, in the order in which a record
passes them:

- `queues`: fetched records are deserialized and selected in Kafka Streams' order.
- `executor`: a batch passes through the sub-topology one operator at a time. `compile_operator`
  creates the operators, and `steps` finds the nodes that must process single records because they
  share a store. `node_context` and `task_processing` contain the services that operators use.
- `sinks` and `collector`: outputs are serialized as lists and passed to the producer.
- `punctuations`: stream-time punctuators run after each batch, wall-clock punctuators in each round
  of the loop.
- `commit_barrier` and `commit_metadata`: whether a commit waits for records in flight, and the
  metadata that it stores with the offsets.

`error_handling` calls exception handlers, `time_limits` keeps batches short when user code is slow,
`task_meters` updates the metrics, and `retention_check` warns about changelogs that do not retain
old records.

The result is always the same as with record-at-a-time, depth-first processing.
"""
