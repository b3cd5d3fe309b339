"""Minimum-cost flows, with the same results as in Kafka Streams.

Source of the semantics: Kafka Streams' `Graph` (KIP-925): negative cycles are canceled one by one,
each found by Bellman-Ford. There are often several minimum-cost flows, and the result depends on
the order of every step, which is preserved here. Steps without effect are skipped, and repeating
rounds are counted instead of executed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import sub
from typing import Final, NamedTuple

#: The longest detected period of repeating rounds.
_MAX_PERIOD: Final = 64


class _Arc(NamedTuple):
    """One direction of an edge.

    The index of the other direction differs in the lowest bit.
    """

    end: int
    cost: int
    number: int


class FlowGraph:
    """A directed graph with capacities, costs and a flow.

    There is at most one edge between two nodes. Nodes are ordered by their numbers. The first node
    is the source, and the last is the sink.
    """

    def __init__(self, size: int) -> None:
        self._arcs: list[list[_Arc]] = [[] for _ in range(size)]
        #: The residual capacity of each arc. Against the direction of an edge, this is its flow.
        self._residual: list[int] = []

    def add_edge(self, start: int, end: int, capacity: int, cost: int, flow: int = 0) -> int:
        """Add an edge; return its id for `flow`."""
        edge = len(self._residual)
        self._arcs[start].append(_Arc(end, cost, edge))
        self._arcs[end].append(_Arc(start, -cost, edge + 1))
        self._residual += (capacity - flow, flow)
        return edge

    def flow(self, edge: int) -> int:
        return self._residual[edge + 1]

    def maximize_flow(self) -> int:
        """Maximize the flow, regardless of its cost; return its amount.

        Requires a graph without flow.
        """
        self._sort()
        open_ends = [
            sum(1 << arc.end for arc in arcs if self._residual[arc.number]) for arcs in self._arcs
        ]
        place_of = [{arc.end: arc.number for arc in arcs} for arcs in self._arcs]
        total = 0
        while nodes := _augmenting_path(open_ends):
            steps = [(start, end, place_of[start][end]) for end, start in pairwise(nodes)]
            added = min(self._residual[index] for _, _, index in steps)
            self._augment((index for _, _, index in steps), added)
            for start, end, index in steps:
                open_ends[end] |= 1 << start
                if not self._residual[index]:
                    open_ends[start] &= ~(1 << end)
            total += added
        return total

    def minimize_cost(self, budget: int) -> int:
        """Minimize the cost of the flow without changing its amount.

        Examines at most `budget` arcs. Returns the remaining budget; 0 if there may be a flow with
        a lower cost.
        """
        self._sort()
        while True:
            search = _NegativeCycleSearch(self._arcs, self._residual, budget)
            cycle = search.negative_cycle()
            budget = search.budget
            if not cycle:
                return budget
            self._augment(cycle, min(self._residual[index] for index in cycle))

    def _sort(self) -> None:
        for arcs in self._arcs:
            arcs.sort()

    def _augment(self, indexes: Iterable[int], amount: int) -> None:
        for index in indexes:
            self._residual[index] -= amount
            self._residual[index ^ 1] += amount


def _augmenting_path(open_ends: Sequence[int]) -> list[int]:
    """Return the nodes of a shortest path with residual capacity.

    The path leads from the sink back to the source. `open_ends` contains the ends of each node's
    arcs with residual capacity, as a bit set.
    """
    sink = len(open_ends) - 1
    came_from = {0: 0}
    seen = 1
    queue = deque([0])
    while queue and sink not in came_from:
        node = queue.popleft()
        new = open_ends[node] & ~seen
        seen |= new
        while new:
            lowest = new & -new
            new ^= lowest
            end = lowest.bit_length() - 1
            came_from[end] = node
            queue.append(end)
    if sink not in came_from:
        return []
    path = [sink]
    while path[-1]:
        path.append(came_from[path[-1]])
    return path


class _NegativeCycleSearch:
    """A search for a negative cycle, by the distances from a virtual node.

    Initially, all nodes have the distance 0 from the virtual node. The arcs of each node are
    ordered by their ends. `budget` is the remaining number of arcs to examine; 0 if the search was
    abandoned.
    """

    def __init__(
        self, all_arcs: Sequence[Sequence[_Arc]], residual: Sequence[int], budget: int
    ) -> None:
        self.budget = budget
        # The predecessor of each node on its shortest path, and the index of the arc between them.
        self._predecessor = [-1] * len(all_arcs)
        self._predecessor_arc = [-1] * len(all_arcs)
        self._arcs = [[arc for arc in arcs if residual[arc[2]]] for arcs in all_arcs]
        # Includes the virtual start node.
        self._rounds = 1 + sum(1 for arcs in all_arcs if arcs)
        self._distance = [0] * len(all_arcs)
        # Whether the distance of each node is unchanged since its arcs were examined.
        self._is_relaxed = bytearray(len(all_arcs))
        self._arcs_per_round = 1 + sum(map(len, self._arcs))

    def negative_cycle(self) -> list[int]:
        """Return the arcs of a negative cycle with residual capacity.

        The list is empty if there is no such cycle.
        """
        node = self._node_after_cycle()
        if node is None:
            return []
        seen: set[int] = set()
        while node not in seen:
            seen.add(node)
            node = self._predecessor[node]
        cycle: list[int] = []
        last = node
        while not cycle or node != last:
            cycle.append(self._predecessor_arc[node])
            node = self._predecessor[node]
        return cycle

    def _node_after_cycle(self) -> int | None:
        """Return a node whose distance still decreases in the last round, or None.

        After that many rounds, the path to such a node must contain a cycle, because a path without
        a cycle has fewer arcs.
        """
        history = deque([self._distance.copy()], _MAX_PERIOD + 1)
        done, next_check = 0, 3
        while done < self._rounds - 1:
            self.budget = max(0, self.budget - self._arcs_per_round)
            if self._relax_all() is None or not self.budget:
                return None
            done += 1
            history.append(self._distance.copy())
            if done < next_check:
                continue
            done += self._skip_repetitions(history, self._rounds - 1 - done)
            next_check = done + 2 + len(history) // 3
        return self._relax_all(stop_at_first=True)

    def _relax_all(self, *, stop_at_first: bool = False) -> int | None:
        """Relax all arcs once; return a node with a reduced distance, or None."""
        distance, is_done = self._distance, self._is_relaxed
        came_from, came_along = self._predecessor, self._predecessor_arc
        nearer: int | None = None
        for node, arcs in enumerate(self._arcs):
            if is_done[node]:
                continue
            is_done[node] = 1
            base = distance[node]
            for end, cost, index in arcs:
                if base + cost < distance[end]:
                    distance[end] = base + cost
                    came_from[end] = node
                    came_along[end] = index
                    is_done[end] = 0
                    nearer = end
                    if stop_at_first:
                        return nearer
        return nearer

    def _skip_repetitions(self, history: deque[list[int]], left: int) -> int:
        """Skip rounds that would repeat the previous ones; return their number.

        With a negative cycle, distances decrease forever, soon by the same amounts in each period.
        Updates `history`, the distances after each of the last rounds. Skips at most `left` rounds.
        """
        now = history[-1]
        for period in range(1, min(len(history) - 1, left) + 1):
            before = history[-1 - period]
            decreases = list(map(sub, before, now))
            times = self._repetitions(before, now, decreases, left // period)
            if times:
                skipped = [times * by for by in decreases]
                last = list(history)[-1 - period :]
                history.clear()
                history.extend(list(map(sub, distances, skipped)) for distances in last)
                self._distance = history[-1].copy()
                return times * period
        return 0

    def _repetitions(
        self, before: Sequence[int], now: Sequence[int], decreases: Sequence[int], repetitions: int
    ) -> int:
        """Return how often the rounds between two states repeat along the same arcs.

        Between nodes that decrease equally fast, each comparison keeps its result. An arc to a node
        that decreases faster must not have been used, since it would not be used again. An arc to a
        slower node must not be used yet, but it will be eventually: this limits the number of
        repetitions.
        """
        for node, arcs in enumerate(self._arcs):
            speed = decreases[node]
            base = now[node]
            for end, cost, _ in arcs:
                slower = speed - decreases[end]
                if slower:
                    spare = base + cost - before[end]
                    if spare < max(slower, 0):
                        return 0
                    if slower > 0:
                        repetitions = min(repetitions, spare // slower)
        return repetitions
