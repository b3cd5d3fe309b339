"""Deduplication: forward each event once.

Producers that retry, and applications that restart after a crash, write some events twice. The ids
of past events are in a window store, which expires them in segments; this is cheaper than searching
for old entries. The store must be partitioned by the compared value: here the id of the event is
the key. If the id is not the key, use `select_key(...).repartition(...)` first.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import (
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
    WindowStore,
)
from millstream.serdes import BOOLEAN, STRING
from millstream.testing import TopologyTestDriver

RETENTION = timedelta(days=1)
RETENTION_MS = RETENTION // timedelta(milliseconds=1)


class ForwardOnce(Processor[str, str, str, str]):
    """A processor that drops an event if its id has already been seen within a day."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.seen: WindowStore[str, bool] = context.get_state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        time_ms = record.timestamp
        with self.seen.fetch(record.key, time_ms - RETENTION_MS, time_ms + RETENTION_MS) as found:
            is_duplicate = next(found, None) is not None
        if not is_duplicate:
            self.seen.put(record.key, True, time_ms)
            self.context.forward(record)


def unique() -> Topology:
    """Forward the first event of each id. Events are keyed by id."""
    builder = StreamsBuilder()
    # Ids are stored for twice as long, because late events are also compared with newer ones.
    supplier = Stores.persistent_window("seen", 2 * RETENTION, timedelta(milliseconds=1))
    builder.add_state_store(Stores.window_builder(supplier, STRING, BOOLEAN))
    (
        builder.stream("events", key=STRING, value=STRING)
        .process(ForwardOnce, stores=["seen"], name="once")
        .to("unique-events", key=STRING, value=STRING)
    )
    return builder.build()


def test_the_same_id_within_a_day_is_a_duplicate() -> None:
    hour = 3_600_000
    with TopologyTestDriver(unique()) as driver:
        events = driver.create_input_topic("events", key=STRING, value=STRING)
        for id_, time in (("a", 0), ("b", 1), ("a", 2), ("a", 30), ("b", 20)):
            events.pipe_input(id_, f"at {time}", timestamp=time * hour)
        found = driver.create_output_topic("unique-events", key=STRING, value=STRING)
        assert found.read_values() == ["at 0", "at 1", "at 30"]
