"""Which processes have how much of the state of each task."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from millstream.assignment.placing.client_load import NOTHING_KNOWN, ClientLoad
from millstream.assignment.placing.lags import TaskLags
from millstream.assignment.wire.protocol import LATEST_OFFSET
from millstream.record import TaskId


class StateAtHand:
    """Finds those that have the state of a task among many that have none of it.

    Of each task the few processes that said something of it are kept; all others are alike.

    Args:
        clients: in the order of process ids.
        acceptable_lag: with so few changelog records to restore a process is caught up.
    """

    def __init__(self, clients: Sequence[ClientLoad], acceptable_lag: int) -> None:
        self._clients = clients
        self._acceptable_lag = acceptable_lag
        lags = [client.process.lags for client in clients]
        sparse = [each for each in lags if isinstance(each, TaskLags)]
        self._lags_of_others: Mapping[TaskId, int] = {}
        said: Sequence[Iterable[TaskId]] = lags
        if len(sparse) == len(lags) and all(each.ends is sparse[0].ends for each in sparse):
            self._lags_of_others = sparse[0].ends
            said = [each.said for each in sparse]
        #: The numbers of the clients that said something, in order.
        self._those_who_said: dict[TaskId, list[int]] = {}
        for number, task_ids in enumerate(said):
            for task_id in task_ids:
                self._those_who_said.setdefault(task_id, []).append(number)

    def is_caught_up(self, client: ClientLoad, task_id: TaskId) -> bool:
        """Whether the client could go on with the task at once."""
        return self.is_little(client.lag(task_id))

    def is_little(self, lag: int) -> bool:
        """Whether who has such a lag could go on with the task at once, or runs it."""
        return 0 <= lag <= self._acceptable_lag or lag == LATEST_OFFSET

    def caught_up(self, task_id: TaskId) -> list[ClientLoad]:
        """All that could, in order."""
        if self.is_little(self._lag_of_others(task_id)):
            return [client for client in self._clients if self.is_caught_up(client, task_id)]
        clients, is_little = self._clients, self.is_little
        said = [clients[number] for number in self._who_said(task_id)]
        return [client for client in said if is_little(client.lag(task_id))]

    def least_lag(self, task_id: TaskId) -> int:
        """The lag of the one that is furthest."""
        numbers, clients = self._who_said(task_id), self._clients
        lags = [clients[number].lag(task_id) for number in numbers]
        if len(numbers) < len(clients):
            lags.append(self._lag_of_others(task_id))
        return min(lags)

    def ahead_of(self, client: ClientLoad, task_id: TaskId) -> Iterator[ClientLoad]:
        """Those before a client in the order of their lags, of equals in their own order."""
        said = self._who_said(task_id)
        is_said = set(said)
        known = sorted((self._clients[number].lag(task_id), number) for number in said)
        lag = self._lag_of_others(task_id)
        others = ((lag, number) for number in range(len(self._clients)) if number not in is_said)
        for _, number in heapq.merge(known, others):
            if self._clients[number] is client:
                return
            yield self._clients[number]

    def _who_said(self, task_id: TaskId) -> Sequence[int]:
        return self._those_who_said.get(task_id, ())

    def _lag_of_others(self, task_id: TaskId) -> int:
        return self._lags_of_others.get(task_id, NOTHING_KNOWN)
