"""The tasks of a stream thread: creation, restoration, inputs and offsets.

`task_manager` owns the tasks and moves them from creation to running. `restoration` reads their
changelogs between the batches of running tasks and reports that (`restore_reports`). Only restored
tasks read input (`task_inputs`), from the group's offsets or by the reset policy (`start_offsets`);
`expired_offsets` warns about state without committed offsets.

`global_stores` are copies of global topics, which `global_store_updater` keeps up to date; tasks
only start when these have caught up. `thread_assignor` is the thread's part of a rebalance; without
topics other than global ones, `no_group` replaces the group member.
"""
