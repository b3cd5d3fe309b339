"""A process and its load during an assignment.

Corresponds to the part of Kafka Streams' `ClientState` that load-balancing assignors need.
"""

from __future__ import annotations

import heapq
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Generic, Literal, TypeVar

from millstream.assignment.task_assignor import ProcessAssignment, ProcessState
from millstream.record import TaskId

log = logging.getLogger(__name__)

#: The role of a task.
Role = Literal["active", "standby"]

#: The lag of a client that reported no position for a task.
UNKNOWN_LAG: Final = 2**63 - 1


class ClientLoad:
    """The tasks assigned to one process so far."""

    __slots__ = ("active", "process", "process_id", "standby")

    def __init__(self, process_id: uuid.UUID, process: ProcessState) -> None:
        self.process_id = process_id
        self.process = process
        self.active: set[TaskId] = set()
        self.standby: set[TaskId] = set()

    @property
    def count(self) -> int:
        return len(self.active) + len(self.standby)

    @property
    def load(self) -> float:
        """Tasks per thread."""
        return self.count / self.process.threads

    @property
    def active_load(self) -> float:
        return len(self.active) / self.process.threads

    def has(self, task_id: TaskId) -> bool:
        """Return whether the task is assigned in either role."""
        return task_id in self.active or task_id in self.standby

    def tasks(self, role: Role) -> set[TaskId]:
        return self.active if role == "active" else self.standby

    def lag(self, task_id: TaskId) -> int:
        """Return the number of changelog records to restore.

        This is `LATEST_OFFSET` for a running task. Without a reported position, the entire state
        must be restored.
        """
        return self.process.lags.get(task_id, UNKNOWN_LAG)

    @property
    def assignment(self) -> ProcessAssignment:
        return ProcessAssignment(frozenset(self.active), frozenset(self.standby))


def load_of(client: ClientLoad) -> float:
    return client.load


def balance_over_threads(
    clients: Sequence[ClientLoad],
    role: Role,
    may_move: Callable[[ClientLoad, ClientLoad], bool] = lambda source, destination: True,
) -> None:
    """Move tasks of one role until the loads are balanced.

    Follows KIP-441: each client in turn is balanced with each other client, until a complete round
    moves nothing. The order determines which tasks move.
    """
    moved = True
    while moved:
        moved = False
        lightest = _lightest(clients)
        for source in clients:
            # Usually there is nothing to balance, and checking all pairs of 500 clients is slow.
            if not any(_surplus(source, destination) for destination in lightest):
                continue
            moves = [
                _even_out(source, destination, role)
                for destination in clients
                if _surplus(source, destination) and may_move(source, destination)
            ]
            if any(moves):
                moved = True
                lightest = _lightest(clients)


def _lightest(clients: Iterable[ClientLoad]) -> list[ClientLoad]:
    """Return, for each number of threads, a client with the fewest tasks.

    A client that cannot move a task to any of these cannot move one to any client.
    """
    found: dict[int, ClientLoad] = {}
    for client in clients:
        lightest = found.setdefault(client.process.threads, client)
        if client.count < lightest.count:
            found[client.process.threads] = client
    return list(found.values())


def _even_out(source: ClientLoad, destination: ClientLoad, role: Role) -> int:
    """Move the surplus (the first tasks that the destination lacks); return its size."""
    lacking = (task_id for task_id in sorted(source.tasks(role)) if not destination.has(task_id))
    moving = set(islice(lacking, _surplus(source, destination)))
    source.tasks(role).difference_update(moving)
    destination.tasks(role).update(moving)
    return len(moving)


def _surplus(source: ClientLoad, destination: ClientLoad) -> int:
    """Return how many tasks can move to the destination.

    The destination must not have more tasks per thread than the source afterwards. The result is
    the largest k with (s - k) / S >= (d + k) / D, where s and d are the numbers of tasks, and S and
    D those of threads. It is computed in integers, without rounding errors.
    """
    threads, other_threads = source.process.threads, destination.process.threads
    ahead = source.count * other_threads - destination.count * threads
    return max(0, ahead // (threads + other_threads))


T = TypeVar("T")


class LeastLoaded(Generic[T]):
    """Finds the least loaded candidate; of equally loaded ones, the first.

    Loads may only increase. Scanning 500 processes for each of 10,000 tasks takes seconds; the heap
    needs a few steps per task.
    """

    def __init__(self, candidates: Iterable[tuple[int, T]], load: Callable[[T], float]) -> None:
        self._load = load
        self._heap = [(load(candidate), order, candidate) for order, candidate in candidates]
        heapq.heapify(self._heap)

    def first(self, fits: Callable[[T], bool] | None = None) -> T | None:
        """Return the least loaded candidate that fits, or None."""
        found = self.rank(fits)
        return None if found is None else found[2]

    def rank(self, fits: Callable[[T], bool] | None = None) -> tuple[float, int, T] | None:
        """Like `first`, but also return the load and the order, to compare results."""
        heap, load = self._heap, self._load
        rejected: list[tuple[float, int, T]] = []
        found = None
        while heap and found is None:
            recorded, order, candidate = heap[0]
            current = load(candidate)
            if recorded != current:
                # Loads only increase, so the recorded load is too low, and outdated entries reach
                # the top of the heap first.
                heapq.heapreplace(heap, (current, order, candidate))
            elif fits is None or fits(candidate):
                found = heap[0]
            else:
                rejected.append(heapq.heappop(heap))
        for entry in rejected:
            heapq.heappush(heap, entry)
        return found


def place_standbys(
    clients: Sequence[ClientLoad], missing: Mapping[TaskId, int], replicas: int
) -> None:
    """Assign missing standbys to the least loaded clients without the task.

    `replicas` is only used in the log message.
    """
    by_load = LeastLoaded(enumerate(clients), load_of)
    short: list[TaskId] = []
    for task_id, count in missing.items():
        placed = 0
        while placed < count and (client := without(task_id, by_load)) is not None:
            client.standby.add(task_id)
            placed += 1
        if placed < count:
            short.append(task_id)
    if short:
        log.warning(
            "%d tasks, including %s, get fewer than %d standbys: there are only %d processes (one "
            "per host and instance). Run threads on more hosts, or decrease num.standby.replicas",
            len(short),
            short[0],
            replicas,
            len(clients),
        )


def without(task_id: TaskId, by_load: LeastLoaded[ClientLoad]) -> ClientLoad | None:
    return by_load.first(lambda client: not client.has(task_id))
