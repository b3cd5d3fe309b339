"""The cheapest flow through a graph, as Kafka Streams finds it.

Source of the semantics: Kafka Streams' `Graph` (KIP-925): cycles along which flow can be had for
less are cancelled one by one, each found by Bellman-Ford. Often several flows are the cheapest, and
which one comes out depends on the order of every step; it is kept here. Steps that change nothing
are not taken, and rounds which only repeat each other are counted instead of run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import sub
from typing import Final, NamedTuple

#: How many rounds may be between two that do the same, for that to be noticed.
_LONGEST_PERIOD: Final = 64


class _Arc(NamedTuple):
    """One direction of an edge; the other one is at the same place with its lowest bit turned."""

    end: int
    cost: int
    place: int


class FlowGraph:
    """A directed graph with capacities, costs and a flow. There is at most one edge between two
    nodes, and the order of the nodes is that of their numbers.

    Args:
        size: how many nodes there may be; the first is the source, the last the sink.

    Example:
        >>> graph = FlowGraph(4)
        >>> far, near = graph.add_edge(0, 1, 1, 10, flow=1), graph.add_edge(0, 2, 1, 2)
        >>> _ = graph.add_edge(1, 3, 1, 0, flow=1), graph.add_edge(2, 3, 1, 0)
        >>> graph.minimize_cost(1_000) > 0
        True
        >>> graph.flow(far), graph.flow(near)
        (0, 1)
    """

    def __init__(self, size: int) -> None:
        self._arcs: list[list[_Arc]] = [[] for _ in range(size)]
        #: How much more can flow along each arc; against an edge, as much as flows along it.
        self._room: list[int] = []

    def add_edge(self, start: int, end: int, capacity: int, cost: int, flow: int = 0) -> int:
        """Add an edge, and return what `flow` knows it by."""
        edge = len(self._room)
        self._arcs[start].append(_Arc(end, cost, edge))
        self._arcs[end].append(_Arc(start, -cost, edge + 1))
        self._room += (capacity - flow, flow)
        return edge

    def flow(self, edge: int) -> int:
        """How much flows along an edge."""
        return self._room[edge + 1]

    def maximize_flow(self) -> int:
        """Let as much flow as can, at any cost; how much that is. There must be no flow yet."""
        self._sort()
        open_ends = [
            sum(1 << arc.end for arc in arcs if self._room[arc.place]) for arcs in self._arcs
        ]
        place_of = [{arc.end: arc.place for arc in arcs} for arcs in self._arcs]
        total = 0
        while nodes := _open_path(open_ends):
            steps = [(start, end, place_of[start][end]) for end, start in pairwise(nodes)]
            added = min(self._room[place] for _, _, place in steps)
            self._push((place for _, _, place in steps), added)
            for start, end, place in steps:
                open_ends[end] |= 1 << start
                if not self._room[place]:
                    open_ends[start] &= ~(1 << end)
            total += added
        return total

    def minimize_cost(self, effort: int) -> int:
        """Let the same amount flow at the least cost.

        Args:
            effort: how many arcs may be looked at. When it is used up, less has been won.

        Returns:
            What is left of the effort; 0 if there may be a flow that costs less.
        """
        self._sort()
        while True:
            search = _Search(self._arcs, self._room, effort)
            cycle = search.negative_cycle()
            effort = search.effort
            if not cycle:
                return effort
            self._push(cycle, min(self._room[place] for place in cycle))

    def _sort(self) -> None:
        for arcs in self._arcs:
            arcs.sort()

    def _push(self, places: Iterable[int], amount: int) -> None:
        for place in places:
            self._room[place] -= amount
            self._room[place ^ 1] += amount


def _open_path(open_ends: Sequence[int]) -> list[int]:
    """The nodes of a path with the fewest arcs that has room, from the sink back to the source.

    Args:
        open_ends: of each node, those that an arc with room leads to, as the bits of a number.
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


class _Search:
    """One search for a negative cycle, by the distances of the nodes from one that is 0 from all.

    Args:
        all_arcs: of each node, in the order of their ends.
        room: how much more can flow along each arc.
        effort: how many arcs may be looked at.

    Attributes:
        effort: what is left of it; 0 if the search was given up.
    """

    def __init__(
        self, all_arcs: Sequence[Sequence[_Arc]], room: Sequence[int], effort: int
    ) -> None:
        self.effort = effort
        # The node before each one on the shortest way there, and the place of the arc from there.
        self._came_from = [-1] * len(all_arcs)
        self._came_along = [-1] * len(all_arcs)
        self._arcs = [[arc for arc in arcs if room[arc[2]]] for arcs in all_arcs]
        # The node that all ways start from is one more.
        self._rounds = 1 + sum(1 for arcs in all_arcs if arcs)
        self._distance = [0] * len(all_arcs)
        # A node whose distance is still what it was when its arcs were looked at last.
        self._is_done = bytearray(len(all_arcs))
        self._effort_of_round = 1 + sum(map(len, self._arcs))

    def negative_cycle(self) -> list[int]:
        """The arcs of a cycle along which more can flow for less than nothing, if there is one."""
        node = self._node_behind_cycle()
        if node is None:
            return []
        seen: set[int] = set()
        while node not in seen:
            seen.add(node)
            node = self._came_from[node]
        cycle: list[int] = []
        last = node
        while not cycle or node != last:
            cycle.append(self._came_along[node])
            node = self._came_from[node]
        return cycle

    def _node_behind_cycle(self) -> int | None:
        """A node that is nearer in the last round than in the one before, if there is one.

        With that many rounds it is reached over a cycle, for no other way has as many arcs.
        """
        history = deque([self._distance.copy()], _LONGEST_PERIOD + 1)
        done, look_at = 0, 3
        while done < self._rounds - 1:
            self.effort = max(0, self.effort - self._effort_of_round)
            if self._round() is None or not self.effort:
                return None
            done += 1
            history.append(self._distance.copy())
            if done < look_at:
                continue
            done += self._skip_repetitions(history, self._rounds - 1 - done)
            look_at = done + 2 + len(history) // 3
        return self._round(stop_at_first=True)

    def _round(self, *, stop_at_first: bool = False) -> int | None:
        """Go along all arcs once; a node that got nearer, if there is one."""
        distance, is_done = self._distance, self._is_done
        came_from, came_along = self._came_from, self._came_along
        nearer: int | None = None
        for node, arcs in enumerate(self._arcs):
            if is_done[node]:
                continue
            is_done[node] = 1
            base = distance[node]
            for end, cost, place in arcs:
                if base + cost < distance[end]:
                    distance[end] = base + cost
                    came_from[end] = node
                    came_along[end] = place
                    is_done[end] = 0
                    nearer = end
                    if stop_at_first:
                        return nearer
        return nearer

    def _skip_repetitions(self, history: deque[list[int]], left: int) -> int:
        """Skip rounds that would repeat those before; how many.

        Over a cycle distances sink for ever, soon by the same amounts every so many rounds.

        Args:
            history: the distances after each of the last rounds; brought up to date.
            left: how many rounds may be skipped at most.
        """
        now = history[-1]
        for period in range(1, min(len(history) - 1, left) + 1):
            before = history[-1 - period]
            sunk = list(map(sub, before, now))
            times = self._repetitions(before, now, sunk, left // period)
            if times:
                skipped = [times * by for by in sunk]
                last = list(history)[-1 - period :]
                history.clear()
                history.extend(list(map(sub, distances, skipped)) for distances in last)
                self._distance = history[-1].copy()
                return times * period
        return 0

    def _repetitions(
        self, before: Sequence[int], now: Sequence[int], sunk: Sequence[int], most: int
    ) -> int:
        """How often the rounds between two states will be repeated, going along the same arcs.

        Between nodes that sink equally fast, each comparison will have the result it had. To a
        node that sinks faster no arc may lead that was of use, for it would not be again. To a
        slower one none may lead that is of use, but some day it will be: until then it goes on.
        """
        for node, arcs in enumerate(self._arcs):
            speed = sunk[node]
            base = now[node]
            for end, cost, _ in arcs:
                slower = speed - sunk[end]
                if slower:
                    spare = base + cost - before[end]
                    if spare < max(slower, 0):
                        return 0
                    if slower > 0:
                        most = min(most, spare // slower)
        return most
