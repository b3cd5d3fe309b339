"""What operators of one task need whose work goes on beside the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.operators.apart.calls import Apart
from millstream.operators.apart.flights import Flights
from millstream.subscriptions.refused import Refused
from millstream.subscriptions.share import SubscriptionShare


class ReleasedTime:
    """The stream time of whatever lies behind such operators: that of what they have given back.

    Args:
        next_call_ms: when somebody there is to be called by stream time; None for nobody.

    Attributes:
        stream_time: the highest time given back so far; -1 before the first record.
    """

    def __init__(self, next_call_ms: Callable[[], int | None] = lambda: None) -> None:
        self.stream_time = -1
        #: How many records go on at once at most; None for all.
        self.most: int | None = None
        self._next_call_ms = next_call_ms

    def pass_on(self, timestamps: Sequence[int]) -> list[int]:
        """Records with these times arrive there: the stream time at each, up to the first that
        somebody is to be called after, and no more than `most`."""
        until_ms = self._next_call_ms()
        times: list[int] = []
        for timestamp in timestamps:
            self.stream_time = max(self.stream_time, timestamp)
            times.append(self.stream_time)
            if len(times) == self.most:
                break
            if until_ms is not None and self.stream_time >= until_ms:
                break
        return times


@dataclass(frozen=True, slots=True)
class Equipment:
    """What operators of one task need whose work goes on beside the loop.

    Args:
        apart: makes calls.
        in_offset_order: whether results go on in the order of their offsets in any case, so that a
            transaction holds nothing of a record behind the committed offset.
        lands: whether a commit waits until nothing is in flight, so that little is to be taken.
        flights: what is in flight.
        time: that of what is given back.
        share: what the partitions of a subscription have in common on this thread.
        refused: the tasks of a subscription that could not be written elsewhere.
    """

    apart: Apart
    in_offset_order: bool = False
    lands: bool = False
    flights: Flights = field(default_factory=Flights)
    time: ReleasedTime = field(default_factory=ReleasedTime)
    share: SubscriptionShare = field(default_factory=SubscriptionShare)
    refused: Refused = field(default_factory=Refused)
