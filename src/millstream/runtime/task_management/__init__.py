"""The tasks of a stream thread: creation, restoration, inputs and offsets.

`task_manager` owns the tasks and moves them from creation to running. `restoration` reads their
changelogs between the batches of running tasks and reports its progress (`restore_reports`). Only
restored tasks read input (`task_inputs`), starting at the group's offsets or according to the reset
policy (`start_offsets`); `expired_offsets` warns about state without committed offsets.

`global_stores` are copies of global topics, which `global_store_updater` keeps up to date; tasks
only start once the copies have caught up. `thread_assignor` implements the thread's part of a
rebalance; if all topics are global, `no_group` replaces the group member.
"""
