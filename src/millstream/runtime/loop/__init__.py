"""The stream thread: polls, processes, commits, and handles rebalances.

`stream_thread` has the loop. In each round it handles commands and rebalances, answers queries,
polls (`record_poller`), lets tasks process batches in turn, and commits when that is due
(`commits`). `at_least_once` and `exactly_once` implement the processing guarantee of a commit.

Caches are flushed, then outputs and offsets are published, and stores write their data after the
group has accepted the offsets. Tasks continue meanwhile where the guarantee allows that.

Revoked tasks are committed before the member rejoins (`rebalances`); work that cannot be committed
is discarded and repeated. `thread_closer` makes the last commit. `reports` and `thread_meters` send
metrics to the driver, and `watchdog` and `uncommitted_work` detect stalls and overdue commits.
"""
