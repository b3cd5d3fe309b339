"""Filter events and add a field, with declared types."""

from __future__ import annotations

import msgspec
from arguments import Arguments
from computations import PASS_ABOVE, cents
from progress import CountingSerde, Progress
from workloads.stateless import Stateless

from millstream import StreamsBuilder, Topology
from millstream.serdes import STRING, json_of


class Event(msgspec.Struct):
    """A record of the input topic."""

    id: int
    user: str
    amount: float
    kind: str


class Bill(msgspec.Struct):
    """The event and its price with tax."""

    id: int
    user: str
    amount: float
    kind: str
    cents: int


def billed(event: Event) -> Bill:
    """Return the bill of an event."""
    return Bill(event.id, event.user, event.amount, event.kind, cents(event.amount))


class StatelessTyped(Stateless):
    """Like `stateless`, but with typed structs (`json_of` with msgspec; Java: the same class)."""

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        events = builder.stream(
            arguments.input_topic, key=STRING, value=CountingSerde(json_of(Event), progress)
        )
        (
            events.filter(lambda _, event: event.amount > PASS_ABOVE)
            .map_values(billed)
            .to(arguments.output_topic, key=STRING, value=json_of(Bill))
        )
        return builder.build()


WORKLOAD = StatelessTyped()
