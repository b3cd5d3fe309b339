"""Racks for tasks where processes are too many to be searched among one by one.

Processes of one rack are alike to a task, but for the one that has it. So the cheapest flow is that
of a few kinds of tasks to a few racks, which is found at once; who of a rack takes which task is
settled afterwards. The costs are as low as those of the search among processes that Kafka Streams
does. Which of several equally cheap processes it is may differ from its choice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from millstream.assignment.racks.min_cost_flow import FlowGraph


def exchange_between_racks(
    owners: Sequence[int],
    racks: Sequence[str | None],
    costs: Sequence[tuple[int, ...]],
    non_overlap: int,
    effort: int,
) -> tuple[list[int], int]:
    """Let tasks change places so that each process keeps as many as it had, at the least cost.

    Args:
        owners: the number of the process that each task was dealt out to.
        racks: the rack of each process.
        costs: of each task, what it costs in each of the racks, in their order.
        non_overlap: what it costs besides to go to another process.
        effort: see `FlowGraph.minimize_cost`.

    Returns:
        The number of each task's process, and what is left of the effort.
    """
    places = {rack: place for place, rack in enumerate(sorted_racks(racks))}
    rack_of = [places[rack] for rack in racks]
    kinds: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for number, (owner, cost) in enumerate(zip(owners, costs, strict=True)):
        kinds.setdefault((rack_of[owner], cost), []).append(number)
    graph = FlowGraph(2 + len(kinds) + len(places))
    sink = 1 + len(kinds) + len(places)
    edges: list[list[int]] = []
    for node, ((home, cost), numbers) in enumerate(kinds.items(), start=1):
        count = len(numbers)
        graph.add_edge(0, node, count, 0, flow=count)
        row: list[int] = []
        for place, price in enumerate(cost):
            end, stays = 1 + len(kinds) + place, place == home
            extra = 0 if stays else non_overlap
            row.append(graph.add_edge(node, end, count, price + extra, flow=stays * count))
        edges.append(row)
    counts = Counter(rack_of[owner] for owner in owners)
    for place in places.values():
        graph.add_edge(1 + len(kinds) + place, sink, counts[place], 0, flow=counts[place])
    left = graph.minimize_cost(effort)
    goes_to: dict[int, int] = {}
    for ((home, _), numbers), row in zip(kinds.items(), edges, strict=True):
        # Those with the lowest ids stay.
        leaving = iter(numbers[graph.flow(row[home]) :])
        for place, edge in enumerate(row):
            if place != home:
                goes_to.update((next(leaving), place) for _ in range(graph.flow(edge)))
    return _settled(owners, rack_of, goes_to), left


def sorted_racks(racks: Sequence[str | None]) -> list[str | None]:
    """Each rack once, in order."""
    return sorted(set(racks), key=lambda rack: rack or "")


def _settled(owners: Sequence[int], rack_of: Sequence[int], goes_to: dict[int, int]) -> list[int]:
    """Each task that changes its rack gets the place of one that leaves that rack."""
    free: dict[int, deque[int]] = {}
    for number in sorted(goes_to):
        free.setdefault(rack_of[owners[number]], deque()).append(owners[number])
    new_owners = list(owners)
    for number, place in sorted(goes_to.items()):
        new_owners[number] = free[place].popleft()
    return new_owners
