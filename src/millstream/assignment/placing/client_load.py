"""A process while tasks are being dealt out: what it has got so far, and how loaded that makes it.

Kafka Streams' `ClientState`, of which assignors that balance by load need just this much.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Literal

from millstream.assignment.placing.least_loaded import LeastLoaded
from millstream.assignment.task_assignor import ProcessAssignment, ProcessState
from millstream.assignment.wire.protocol import LATEST_OFFSET
from millstream.record import TaskId

log = logging.getLogger(__name__)

#: Which of a process' tasks are meant.
Role = Literal["active", "standby"]

#: The lag of who says nothing of a task.
NOTHING_KNOWN: Final = 2**63 - 1


class ClientLoad:
    """What one process has got so far.

    Args:
        process_id: the process.
        process: what it brought into the rebalance.

    Attributes:
        active: the tasks that it is to work on.
        standby: the tasks that it is to keep a copy of the state of.
    """

    __slots__ = ("active", "process", "process_id", "standby")

    def __init__(self, process_id: uuid.UUID, process: ProcessState) -> None:
        self.process_id = process_id
        self.process = process
        self.active: set[TaskId] = set()
        self.standby: set[TaskId] = set()

    @property
    def count(self) -> int:
        """How many tasks it has got, in both roles."""
        return len(self.active) + len(self.standby)

    @property
    def load(self) -> float:
        """Tasks per thread."""
        return self.count / self.process.threads

    @property
    def active_load(self) -> float:
        """Active tasks per thread."""
        return len(self.active) / self.process.threads

    def has(self, task_id: TaskId) -> bool:
        """Whether it has got the task in either role."""
        return task_id in self.active or task_id in self.standby

    def tasks(self, role: Role) -> set[TaskId]:
        """The tasks it has in that role."""
        return self.active if role == "active" else self.standby

    def lag(self, task_id: TaskId) -> int:
        """How many changelog records it would have to restore; `LATEST_OFFSET` for a task that it
        runs. One that says nothing of a task would have to restore all of it."""
        return self.process.lags.get(task_id, NOTHING_KNOWN)

    def runs(self, task_id: TaskId) -> bool:
        """Whether the task is running there as active."""
        return self.lag(task_id) == LATEST_OFFSET

    @property
    def given(self) -> ProcessAssignment:
        """What it has got."""
        return ProcessAssignment(frozenset(self.active), frozenset(self.standby))


def least_loaded(clients: Iterable[ClientLoad]) -> ClientLoad | None:
    """The first of the least loaded clients."""
    return min(clients, key=lambda client: client.load, default=None)


def balance_over_threads(
    clients: Sequence[ClientLoad],
    role: Role,
    may_move: Callable[[ClientLoad, ClientLoad], bool] = lambda source, destination: True,
) -> None:
    """Move tasks of one role until no move would make the loads more equal.

    Follows KIP-441: each client in turn evens out with each other, again and again, until a whole
    turn has moved nothing. The order decides which tasks move.

    Args:
        clients: in the order of process ids.
        role: which tasks may move.
        may_move: whether tasks may go from one client to another.
    """
    moved = True
    while moved:
        moved = False
        lightest = _lightest(clients)
        for source in clients:
            # Mostly there is nothing to even out, and to ask all pairs of 500 takes long.
            if not any(_surplus(source, destination) for destination in lightest):
                continue
            if _even_out_with_all(source, clients, role, may_move):
                moved = True
                lightest = _lightest(clients)


def _lightest(clients: Iterable[ClientLoad]) -> list[ClientLoad]:
    """Of the clients with each number of threads one that has the fewest tasks: who cannot give a
    task to any of these cannot give one to anybody."""
    found: dict[int, ClientLoad] = {}
    for client in clients:
        lightest = found.setdefault(client.process.threads, client)
        if client.count < lightest.count:
            found[client.process.threads] = client
    return list(found.values())


def _even_out_with_all(
    source: ClientLoad,
    clients: Iterable[ClientLoad],
    role: Role,
    may_move: Callable[[ClientLoad, ClientLoad], bool],
) -> int:
    """Even one client out with each other in turn; how many tasks have moved."""
    return sum(
        _even_out(source, destination, role)
        for destination in clients
        if _surplus(source, destination) and may_move(source, destination)
    )


def _even_out(source: ClientLoad, destination: ClientLoad, role: Role) -> int:
    """Move the first tasks that the destination lacks, as many as it is less loaded by."""
    lacking = (task_id for task_id in sorted(source.tasks(role)) if not destination.has(task_id))
    moving = set(islice(lacking, _surplus(source, destination)))
    source.tasks(role).difference_update(moving)
    destination.tasks(role).update(moving)
    return len(moving)


def _surplus(source: ClientLoad, destination: ClientLoad) -> int:
    """How many tasks may go before the destination would be the one with more tasks per thread.

    After k moves it still is not if (s - k) / S >= (d + k) / D, where s and d are the numbers of
    tasks and S and D those of threads; solved for k in whole numbers, where nothing is rounded.
    """
    threads, other_threads = source.process.threads, destination.process.threads
    ahead = source.count * other_threads - destination.count * threads
    return max(0, ahead // (threads + other_threads))


def place_standbys(
    clients: Sequence[ClientLoad], missing: Mapping[TaskId, int], replicas: int
) -> None:
    """Give each task's missing standbys to the least loaded clients that do not have it yet.

    Args:
        clients: in the order of process ids.
        missing: how many standbys each task is still to get.
        replicas: how many each should have (`num.standby.replicas`), for the log.
    """
    by_load = LeastLoaded(enumerate(clients), lambda client: client.load)
    short: list[TaskId] = []
    for task_id, count in missing.items():
        placed = 0
        while placed < count and (client := _without(task_id, by_load)) is not None:
            client.standby.add(task_id)
            placed += 1
        if placed < count:
            short.append(task_id)
    if short:
        log.warning(
            "%d tasks, %s among them, get fewer than %d standbys: there are only %d clients, which "
            "are the hosts of each instance. Have threads on more of them, or lower "
            "num.standby.replicas",
            len(short),
            short[0],
            replicas,
            len(clients),
        )


def _without(task_id: TaskId, by_load: LeastLoaded[ClientLoad]) -> ClientLoad | None:
    return by_load.first(lambda client: not client.has(task_id))
