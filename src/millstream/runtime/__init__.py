"""The processing loop: stream threads that poll Kafka, run tasks in batches, and commit.

A stream thread runs as one long-running Spark task, in a Python process of its own.
`build_thread` builds it: `thread_clients` (its Kafka clients), `client_process` (its identity, host
and state directory), and the parts in these packages, each of which imports only from those before:

- `states`: the legal transitions of threads, tasks and application instances.
- `task`: a task, from queued records to outputs and the offsets to commit.
- `task_management`: the tasks of a thread: creation, restoration, start offsets, global stores.
- `queries`: state store queries, answered between two batches and during commits.
- `loop`: the stream thread: poll, process, commit, rebalance, close.

`start` checks topology, settings and cluster in the driver before an application starts. Driver and
thread exchange the typed messages of `thread_control`; a command wakes the thread wherever it
waits. The same loop runs on a simulated cluster, since its clients are protocols.

Rules:

- Everything of a thread happens on its loop. Exceptions: the group member and the watchdog have
  threads of their own (`loop.watchdog` reads the location of a stalled loop with
  `stack_inspection`), and completed calls are reported from any thread.
- No step blocks for long. What the cluster does not answer is repeated with backoff
  (`retry`), for `task.timeout.ms` at most, while other tasks continue.
- An offset is only committed after everything that its record caused was written.
- Metrics are updated once per batch, never once per record.
"""
