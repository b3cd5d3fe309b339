"""A processor that forwards sums every minute."""

from __future__ import annotations

from array import array
from datetime import timedelta
from typing import Any

from arguments import Arguments
from computations import cents
from harness.check import wrong_users
from harness.load import Load, event_json, user_key
from progress import MarkingSerde, Progress
from workload import Records, Workload

from millstream import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
)
from millstream.serdes import JSON, LONG, STRING

#: The kind of the last record of each partition. Its timestamp is large enough that all sums are
#: forwarded.
TICK = "tick"
TICK_AFTER_MS = 180_000


class MinuteSums(Processor[str, dict[str, Any], str, int]):
    """Sums amounts, and forwards and deletes the sum of each user every minute."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._pending = 0

    def init(self, context: ProcessorContext[str, int]) -> None:
        """Get the store, and schedule a punctuation every minute of stream time."""
        super().init(context)
        self._sums: KeyValueStore[str, int] = context.get_state_store("sums")
        context.schedule(timedelta(minutes=1), PunctuationType.STREAM_TIME, self._forward_sums)

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        """Add an amount."""
        event = record.value
        self._pending += 1
        if event["kind"] != TICK:
            key = record.key
            self._sums.put(key, (self._sums.get(key) or 0) + cents(event["amount"]))

    def _forward_sums(self, time_ms: int) -> None:
        for user, total in self._sums.all():
            self.context.forward(Record(user, total, time_ms))
            self._sums.delete(user)
        self._progress.add(self._pending)
        self._pending = 0


class Punctuated(Workload["array[int]"]):
    """Sums amounts in a store without a cache, with a processor that forwards and deletes all sums
    every minute of stream time."""

    input = "ticked"
    is_complete_when_committed = False

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """Return the processor and its store.

        The run ends when forwarded sums include the last record.
        """
        builder = StreamsBuilder()
        sums = Stores.persistent_key_value("sums")
        builder.add_state_store(Stores.key_value_builder(sums, STRING, LONG))
        (
            builder.stream(arguments.input_topic, key=STRING, value=MarkingSerde(JSON, progress))
            .process(lambda: MinuteSums(progress), stores=["sums"])
            .to(arguments.output_topic, key=STRING, value=LONG)
        )
        return builder.build()

    def fill(self, load_: Load) -> None:
        """Write the events, and a final record to each partition."""
        writer = load_.create()
        events = load_.events(load_.records - load_.partitions)
        for number, (timestamp, user, amount) in enumerate(events):
            writer.send(user_key(user), event_json(number, user, amount), timestamp)
        tick = b'{"id":0,"user":"","amount":0.0,"kind":"%s"}' % TICK.encode()
        for partition in range(load_.partitions):
            writer.send(TICK.encode(), tick, load_.ends_ms + TICK_AFTER_MS, partition)
        writer.flush()

    def answer(self, load_: Load) -> array[int]:
        """Return the sum of each user, over all minutes."""
        sums = array("q", bytes(8 * load_.keys))
        for _, user, amount in load_.events(load_.records - load_.partitions):
            sums[user] += cents(amount)
        return sums

    def wrong(self, answer: array[int], records: Records) -> str | None:
        """Compare the total of each user's forwarded sums."""
        return wrong_users(answer, records, sums_up=True)


WORKLOAD = Punctuated()
