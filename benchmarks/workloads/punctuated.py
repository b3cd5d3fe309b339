"""A processor that tells what came in each minute."""

from __future__ import annotations

from array import array
from datetime import timedelta
from typing import Any

from arguments import Arguments
from check import wrong_users
from load import Load, event_json, user_key
from progress import Progress, Reading
from rules import cents
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

#: The kind of the record that ends each partition: so late that all before it is told.
TICK = "tick"
TICK_AFTER_MS = 180_000


class Minutes(Processor[str, dict[str, Any], str, int]):
    """Adds amounts up, and once a minute tells those of each user and forgets them."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._untold = 0

    def init(self, context: ProcessorContext[str, int]) -> None:
        """Finds the store, and asks to be called each minute of stream time."""
        super().init(context)
        self._sums: KeyValueStore[str, int] = context.get_state_store("sums")
        context.schedule(timedelta(minutes=1), PunctuationType.STREAM_TIME, self._tell)

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        """Adds one amount."""
        event = record.value
        self._untold += 1
        if event["kind"] != TICK:
            key = record.key
            self._sums.put(key, (self._sums.get(key) or 0) + cents(event["amount"]))

    def _tell(self, time_ms: int) -> None:
        for user, total in self._sums.all():
            self.context.forward(Record(user, total, time_ms))
            self._sums.delete(user)
        self._progress.add(self._untold)
        self._untold = 0


class Punctuated(Workload["array[int]"]):
    """A processor that adds amounts up in a store without a cache, and with each minute of stream
    time forwards all sums and deletes them."""

    input = "ticked"
    offsets_tell = False

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """The processor and its store. The end is when the last record was told."""
        builder = StreamsBuilder()
        sums = Stores.persistent_key_value("sums")
        builder.add_state_store(Stores.key_value_builder(sums, STRING, LONG))
        (
            builder.stream(arguments.input_topic, key=STRING, value=Reading(JSON, progress))
            .process(lambda: Minutes(progress), stores=["sums"])
            .to(arguments.output_topic, key=STRING, value=LONG)
        )
        return builder.build()

    def fill(self, load_: Load) -> None:
        """Writes the events, and as the last record of each partition one that ends it."""
        writer = load_.create()
        events = load_.events(load_.records - load_.partitions)
        for number, (timestamp, user, amount) in enumerate(events):
            writer.send(user_key(user), event_json(number, user, amount), timestamp)
        tick = b'{"id":0,"user":"","amount":0.0,"kind":"%s"}' % TICK.encode()
        for partition in range(load_.partitions):
            writer.send(TICK.encode(), tick, load_.ends_ms + TICK_AFTER_MS, partition)
        writer.flush()

    def answer(self, load_: Load) -> array[int]:
        """The sum of each user, over all minutes."""
        sums = array("q", bytes(8 * load_.keys))
        for _, user, amount in load_.events(load_.records - load_.partitions):
            sums[user] += cents(amount)
        return sums

    def wrong(self, answer: array[int], records: Records) -> str | None:
        """Compares what was told of each user, added up."""
        return wrong_users(answer, records, added_up=True)


WORKLOAD = Punctuated()
