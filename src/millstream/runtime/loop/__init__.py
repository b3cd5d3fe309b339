"""The stream thread: polls, processes, commits, and handles rebalances.

`stream_thread` contains the loop. In each round, it handles commands and rebalances, answers
queries, polls (`record_poller`), runs batches of the tasks in turn, and commits when a commit is
due (`commits`). `at_least_once` and `exactly_once` implement the processing guarantee of a commit.

A commit flushes the caches, then publishes outputs and offsets; stores write their data after the
group has accepted the offsets. Tasks continue in the meantime if the guarantee allows that.

Revoked tasks are committed before the member rejoins (`rebalances`); work that cannot be committed
is discarded and repeated. `thread_closer` makes the final commit. `reports` and `thread_meters`
send metrics to the driver, and `watchdog` and `uncommitted_work` detect stalls and overdue commits.
"""
