"""Runs the stream threads on Spark.

Each stream thread is one long-running Spark task in a job of its own, so that threads can be added,
removed and replaced individually.

In the driver: `sessions` finds or starts the Spark session, counts its slots and adds connectors.
`engine` starts, supervises and stops the threads of one application instance. A `hosted_thread`
submits the job of one thread (`jobs`), and submits it again if Spark lost the thread: with backoff,
and preferably on the host that has its state. It also moves threads off executors that are being
decommissioned. `thread_events` delivers the threads' events to the owner.

In the Python worker: `worker` connects to the driver, prepares the process (logging, signals,
garbage collector) and runs the thread; errors are returned as data.

Between them: `code` pickles the thread's code by value, and compares the versions of Python and
packages. Spark only gets a `ThreadPlan`; the code and settings follow over the control connection
(`connection`), which workers open, and which is authenticated, encrypted between machines, and
delivers each message exactly once across reconnects.

`columns` converts keys and values to columns of DataFrames, for `dataframes` and `lake`.
"""
