"""Spark hosts the stream threads.

A stream thread is one long-running Spark task: one job of one task per thread, so that threads can
be added, removed and replaced alone. `session` finds or starts the Spark session, `shipping` turns
the code of a thread into bytes, `engine` runs and supervises the jobs in the driver, `thread_task`
is what runs in the Python worker, and `control` is the connection between the two.
"""
