"""The processing loop of stream threads.

A stream thread polls Kafka, runs tasks in batches, and commits. It runs as one long-running Spark
task, in its own Python process. `build_thread` builds it from its Kafka clients (`thread_clients`),
its identity, host and state directory (`client_process`), and the parts in the following packages.
Each package imports only from the ones above it:

- `states`: the allowed state transitions of threads, tasks and application instances.
- `task`: a task, from queued records to outputs and the offsets to commit.
- `task_management`: the creation and restoration of a thread's tasks, start offsets, global stores.
- `queries`: state store queries, answered between batches and during commits.
- `loop`: the stream thread: poll, process, commit, rebalance, close.

`start` checks the topology, the settings and the cluster in the driver before an application
starts. The driver and the thread exchange the typed messages of `thread_control`; a command wakes
the thread from any wait. The same loop runs on a simulated cluster, because it depends only on the
protocols that the Kafka clients implement.

Rules:

- All work of a stream thread happens on its loop, with two exceptions: the group member and the
  watchdog have their own threads (`loop.watchdog` reads the location of a stalled loop with
  `stack_inspection`), and any thread may report completed calls.
- No step blocks for long. Requests that the cluster does not answer are retried with backoff
  (`retry`) for at most `task.timeout.ms`, while other tasks continue.
- An offset is committed only after all results of its record have been written.
- Metrics are updated once per batch, never once per record.
"""
