"""Decaton's subscriptions: many concurrent tasks per partition, in order by key.

A `ProcessorSubscription` (`api`) builds a topology: for each of its topics, a source, an operator,
and sinks for retries, dead letters and tasks above their quota. `subscription_plan` defines the
data that is shipped to the threads.

- `operator`: the operator of one partition, a concurrent operator. It reads and admits tasks (rate
  limit, per-key quota, ignored keys), queues tasks that may not start yet, calls the processors,
  and handles the results.
- `task_processors`, `processing_context`, `task_completion`: the processors, the contexts of tasks,
  and deferred completion. A task is completed when all of its completions are and its retry, if
  any, is acknowledged.
- `batching`: processors that hold tasks until a batch is full or due.
- `properties`: the properties, and the watcher of a properties file. `task_retry`: the retry
  policy.
- `tasks`: Decaton's record format: extraction of tasks, and the `TaskProducer`.
- `thread_state`, `subscription_metrics`: shared by the partitions of one thread. `tracing`,
  `opentelemetry_tracing`: traces of tasks.

Only `api` depends on `KafkaStreams`; the engine uses the other modules.
"""
