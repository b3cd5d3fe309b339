"""Concurrent operators: calls of user code that run outside of the loop, many at a time.

`map_async`, `map_batches_async` and `subscriptions.operator` derive from `concurrent_operator`. A
record passes these steps:

1. The task takes as many records as the operator has capacity for. `in_flight` tracks their
   offsets: none is completed before all results that it has caused.
2. Each `Call` (`concurrent_calls`) goes to a runner: coroutines on the event loop of the process
   (`coroutine_runner`, `event_loop`) or threads (`thread_runner`). Calls of one unit, such as a
   key, run one after the other. Runners get lists, because a queue operation per record is slow.
3. A completed call wakes the loop, from any thread.
4. The task calls `release`, which emits the results that are due, on the thread of the loop; there
   failures also go to the processing exception handler. Nodes downstream see a batch that arrives
   now, with a stream time of its own (`runner_context`).

If a task is given up, calls in flight are drained for a limited time and then cancelled; the next
owner repeats them. `shared_resource` opens the clients that calls of a process share.
"""
