"""Concurrent operators: calls of user code outside of the loop, many at a time.

`map_async`, `map_batches_async` and `subscriptions.operator` derive from `concurrent_operator`. A
record passes these steps:

1. The task takes as many records as the operator has capacity for. `in_flight` tracks their
   offsets: an input record is completed only when all of its results are.
2. Each `Call` (`concurrent_calls`) goes to a runner: coroutines on the event loop of the process
   (`coroutine_runner`, `event_loop`) or threads (`thread_runner`). Calls of one unit, such as a
   key, run one after the other. Calls are passed to runners as lists, because a queue operation per
   record is slow.
3. When a call completes, on any thread, it wakes the loop.
4. The task calls `release` on the thread of the loop, which emits the results that are due and
   passes failures to the processing exception handler. Downstream nodes process the results like a
   newly arrived batch, with a separate stream time (`runner_context`).

When a task is closed, its calls in flight are drained for a limited time and then canceled; the
next owner of the task repeats the canceled calls. `shared_resource` opens resources that the calls
of a process share, such as HTTP clients.
"""
