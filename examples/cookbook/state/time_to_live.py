"""State that expires: delete keys that have not been updated for a week.

A table keeps its keys forever. If the table would grow without bounds (devices, anonymous
visitors), delete old entries: use a store that keeps the timestamp of each value, and a punctuation
that scans the store once per hour of stream time. Deletions are written to the changelog, so
deleted keys do not reappear after a restart. Windows do not need this, because they have a
retention.
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

TIME_TO_LIVE_MS = timedelta(days=7) // timedelta(milliseconds=1)


class ExpiringCounts(Processor[str, str, str, int]):
    """A processor that counts records, and deletes keys after a week without any."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.counts: KeyValueStore[str, ValueAndTimestamp] = context.get_state_store("counts")
        context.schedule(timedelta(hours=1), PunctuationType.STREAM_TIME, self.expire)

    def process(self, record: Record[str, str]) -> None:
        so_far = self.counts.get(record.key)
        if so_far is None:
            so_far = ValueAndTimestamp(0, record.timestamp)
        last_ms = max(so_far.timestamp, record.timestamp)
        self.counts.put(record.key, ValueAndTimestamp(so_far.value + 1, last_ms))
        self.context.forward(record.with_value(so_far.value + 1))

    def expire(self, stream_time_ms: int) -> None:
        with self.counts.all() as counts:
            old = [key for key, last in counts if last.timestamp < stream_time_ms - TIME_TO_LIVE_MS]
        for key in old:
            self.counts.delete(key)


def counted() -> Topology:
    """Count the visits of each visitor."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.timestamped_key_value_builder(Stores.persistent_key_value("counts"), STRING, LONG)
    )
    (
        builder.stream("visits", key=STRING, value=STRING)
        .process(ExpiringCounts, stores=["counts"], name="count")
        .to("counts", key=STRING, value=LONG)
    )
    return builder.build()


def test_keys_expire_after_a_week() -> None:
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
