"""Starts, supervises and stops stream threads, for `KafkaStreams`.

- `supervisor` starts the threads on Spark and handles their reports. `stream_threads` tracks which
  threads exist, adds and removes them, and sends the current commands to threads that register;
  `thread_metadata` tracks where each thread runs. `failure_policy` calls the uncaught exception
  handler and applies its response, `listeners` calls the user's restore listeners.
- `autoscaling` adds and removes threads as the load changes.
- `dataframes` supervises DataFrame stages, and writes lake histories before the threads start.
- `event_log` records events, `client_metrics` aggregates metrics, `console` combines both in one
  document, and `served_application` serves the application over HTTP.
- `run_application` runs an application as a script: it prints messages, handles signals, and closes
  the application at the end of the script.

The supervisor handles events sequentially on one thread of the engine. The outcome of a stream
thread arrives both over the control connection and as the result of its Spark job.
"""
