"""How the tasks of a process are spread over its threads.

Source of the semantics: Kafka Streams' `StreamsPartitionAssignor.assignTasksToThreads`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping, Sequence

from millstream.record import TaskId


def spread_over_threads(
    tasks: Iterable[TaskId],
    consumers: Iterable[str],
    previous: Mapping[str, Sequence[TaskId]],
    loads: MutableMapping[str, int],
) -> dict[str, list[TaskId]]:
    """The tasks of each thread, their numbers differing by one at most.

    Each thread first keeps what it had, up to its fair share. Then threads below their share are
    filled up in turn. Each of the few tasks that are left over goes to the thread that had it if
    that thread has no more than its share yet, else to the next such thread.

    Args:
        tasks: one kind of tasks of the process.
        consumers: the member ids of its threads.
        previous: what each had before, those first that it should rather keep.
        loads: how many tasks of other kinds each thread has got already. The tasks given out are
            added, so that the next kind evens out the unevenness of this one.
    """
    names = sorted(consumers)
    given: dict[str, list[TaskId]] = {name: [] for name in names}
    left = dict.fromkeys(sorted(tasks))
    share = (sum(loads.values()) + len(left)) // len(names)
    room = {name: share - loads.get(name, 0) for name in names}
    wanted: dict[TaskId, str] = {}
    for name in names:
        for task_id in previous.get(name, ()):
            if task_id not in left:
                continue
            if len(given[name]) < room[name]:
                given[name].append(task_id)
                del left[task_id]
            else:
                wanted[task_id] = name
    below_share = deque(name for name in names if len(given[name]) < room[name])
    while below_share:
        name = below_share.popleft()
        task_id = next(iter(left))
        given[name].append(task_id)
        del left[task_id]
        if len(given[name]) < room[name]:
            below_share.append(name)
    at_share = dict.fromkeys(name for name in names if len(given[name]) == room[name])
    for task_id, name in sorted(wanted.items()):
        if task_id in left and name in at_share:
            given[name].append(task_id)
            del left[task_id]
            del at_share[name]
    assert len(left) <= len(at_share), f"no thread has room for {sorted(left)}"
    # Kafka Streams hands these out in the order in which they lie in a heap; here, in their order.
    for task_id, name in zip(left, at_share, strict=False):
        given[name].append(task_id)
    for name in names:
        loads[name] = loads.get(name, 0) + len(given[name])
    return given
