"""State that expires: forget a key of which nothing was heard for long.

A table keeps its keys for ever. Where that grows without end (devices, anonymous visitors), delete
what is old: a store that keeps the time of each value, and a punctuation that looks through it once
an hour of stream time. A deletion reaches the changelog, so what was forgotten does not come back
with a restart. Windows need none of this, since they have a retention.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
    ValueAndTimestamp,
)
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

LIVES_MS = timedelta(days=7) // timedelta(milliseconds=1)


class CountForAWhile(Processor[str, str, str, int]):
    """Counts the records of each key; a key that is silent for a week begins anew."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.counts: KeyValueStore[str, ValueAndTimestamp] = context.get_state_store("counts")
        context.schedule(timedelta(hours=1), PunctuationType.STREAM_TIME, self.forget)

    def process(self, record: Record[str, str]) -> None:
        so_far = self.counts.get(record.key)
        if so_far is None:
            so_far = ValueAndTimestamp(0, record.timestamp)
        last_ms = max(so_far.timestamp, record.timestamp)
        self.counts.put(record.key, ValueAndTimestamp(so_far.value + 1, last_ms))
        self.context.forward(record.with_value(so_far.value + 1))

    def forget(self, stream_time_ms: int) -> None:
        with self.counts.all() as counts:
            old = [key for key, last in counts if last.timestamp < stream_time_ms - LIVES_MS]
        for key in old:
            self.counts.delete(key)


def counted() -> Topology:
    """Records by visitor in, counts out."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.timestamped_key_value_builder(Stores.persistent_key_value("counts"), STRING, LONG)
    )
    (
        builder.stream("visits", key=STRING, value=STRING)
        .process(CountForAWhile, stores=["counts"], name="count")
        .to("counts", key=STRING, value=LONG)
    )
    return builder.build()


def test_a_week_of_silence_is_the_end() -> None:
    day = 86_400_000
    with TopologyTestDriver(counted()) as driver:
        visits = driver.create_input_topic("visits", key=STRING, value=STRING)
        for visitor, time in (("ann", 0), ("ann", 6), ("bob", 12), ("bob", 14), ("ann", 15)):
            visits.pipe_input(visitor, "/", timestamp=time * day)
        counts = driver.create_output_topic("counts", key=STRING, value=LONG)
        assert counts.read_key_values() == [
            ("ann", 1),
            ("ann", 2),
            ("bob", 1),
            ("bob", 2),
            ("ann", 1),
        ]
