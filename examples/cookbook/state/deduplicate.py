"""Duplicates: let each event through once.

Producers that retry, and applications that go on after a crash, write some events twice. A window
store remembers ids for a day and forgets them by itself, segment by segment, which is cheaper than
to look for old ones. The store must be partitioned by what is compared: the event's id is the key
here. If it is not, `select_key(...).repartition(...)` first.
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

REMEMBER = timedelta(days=1)
REMEMBER_MS = REMEMBER // timedelta(milliseconds=1)


class LetThroughOnce(Processor[str, str, str, str]):
    """Drops an event whose id was seen within a day of it."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.seen: WindowStore[str, bool] = context.get_state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        time_ms = record.timestamp
        with self.seen.fetch(record.key, time_ms - REMEMBER_MS, time_ms + REMEMBER_MS) as before:
            known = next(before, None) is not None
        if not known:
            self.seen.put(record.key, True, time_ms)
            self.context.forward(record)


def unique() -> Topology:
    """Events by their ids in, each once out."""
    builder = StreamsBuilder()
    # Twice as long, since a late event looks a day ahead as well.
    supplier = Stores.persistent_window("seen", 2 * REMEMBER, timedelta(milliseconds=1))
    builder.add_state_store(Stores.window_builder(supplier, STRING, BOOLEAN))
    (
        builder.stream("events", key=STRING, value=STRING)
        .process(LetThroughOnce, stores=["seen"], name="once")
        .to("unique-events", key=STRING, value=STRING)
    )
    return builder.build()


def test_again_within_a_day_is_a_duplicate() -> None:
    hour = 3_600_000
    with TopologyTestDriver(unique()) as driver:
        events = driver.create_input_topic("events", key=STRING, value=STRING)
        for id_, time in (("a", 0), ("b", 1), ("a", 2), ("a", 30), ("b", 20)):
            events.pipe_input(id_, f"at {time}", timestamp=time * hour)
        found = driver.create_output_topic("unique-events", key=STRING, value=STRING)
        assert found.read_values() == ["at 0", "at 1", "at 30"]
