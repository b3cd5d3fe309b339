"""The implementation of `KafkaStreams`: starting, supervising and stopping stream threads.

- `supervisor` starts the threads on Spark and handles their reports. `stream_threads` tracks which
  threads exist, adds and removes them, and sends registering threads the commands in effect;
  `thread_metadata` tracks where each thread runs. `failure_policy` calls the uncaught exception
  handler and applies its response, `listeners` calls the user's restore listeners.
- `autoscaling` adds and removes threads with the load.
- `dataframes` supervises DataFrame stages, and writes lake histories before the threads start.
- `event_log` records what happens, `client_metrics` aggregates metrics, `console` makes one
  document of both, and `served_application` serves it over HTTP.
- `run_application` runs an application as a script: messages, signals, and the end of the script.

The supervisor handles events sequentially on one thread of the engine. A thread's end is data: its
outcome arrives over the control connection and as the result of its Spark job.
"""
