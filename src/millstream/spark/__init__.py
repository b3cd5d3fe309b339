"""Runs the stream threads on Spark.

Each stream thread is one long-running Spark task in its own job, so that threads can be added,
removed and replaced individually.

In the driver, `sessions` finds or starts the Spark session, counts its slots and adds connectors.
`engine` starts, supervises and stops the threads of one application instance. `hosted_thread`
submits the job of one thread through `jobs`. If Spark loses the thread, the job is resubmitted with
backoff, preferably on the host that has the thread's state. `hosted_thread` also moves threads off
executors that are being decommissioned. `thread_events` delivers the threads' events to the owner.

In the Python worker, `worker` connects to the driver, prepares the process (logging, signals,
garbage collector), runs the thread, and returns errors as data.

Between driver and worker, `code` pickles the thread's code by value, and compares the versions of
Python and of packages. Spark only receives a `ThreadPlan`; the code and settings follow over the
control connection (`connection`). Workers open this connection. It is authenticated, encrypted
between machines, and delivers each message exactly once across reconnects.

`columns` converts keys and values to columns of DataFrames, for `dataframes` and `lake`.
"""
