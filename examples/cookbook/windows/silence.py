"""Silence: notice that something has stopped sending.

No record comes to say that none comes, and stream time stands still with the records. So a
processor remembers when each device was heard last, and a punctuation by the wall clock looks, once
a minute, who has been silent for too long. The alarm is raised once, and withdrawn when the device
speaks again.
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
)
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

PATIENCE_MS = 5 * 60_000


class WatchForSilence(Processor[str, str, str, str]):
    """Keeps for each device when it was heard last; a negative time means that it was reported."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.heard: KeyValueStore[str, int] = context.get_state_store("heard")
        context.schedule(timedelta(minutes=1), PunctuationType.WALL_CLOCK_TIME, self.look)

    def process(self, record: Record[str, str]) -> None:
        now_ms = self.context.current_system_time_ms()
        if (self.heard.get(record.key) or 0) < 0:
            self.context.forward(record.with_value("back"))
        self.heard.put(record.key, now_ms)

    def look(self, now_ms: int) -> None:
        with self.heard.all() as devices:
            silent = [name for name, ms in devices if 0 <= ms <= now_ms - PATIENCE_MS]
        for name in silent:
            self.heard.put(name, -now_ms)
            self.context.forward(Record(name, "silent", now_ms))


def watched() -> Topology:
    """Measurements by device in, `silent` and `back` out."""
    builder = StreamsBuilder()
    heard = Stores.key_value_builder(Stores.persistent_key_value("heard"), STRING, LONG)
    builder.add_state_store(heard)
    (
        builder.stream("measurements", key=STRING, value=STRING)
        .process(WatchForSilence, stores=["heard"], name="watch")
        .to("alarms", key=STRING, value=STRING)
    )
    return builder.build()


def test_silence_is_told_once_and_so_is_its_end() -> None:
    with TopologyTestDriver(watched(), initial_wall_clock_ms=1_000) as driver:
        measurements = driver.create_input_topic("measurements", key=STRING, value=STRING)
        alarms = driver.create_output_topic("alarms", key=STRING, value=STRING)
        measurements.pipe_input("pump", "3 bar")
        for _ in range(10):
            driver.advance_wall_clock_time(timedelta(minutes=1))
        measurements.pipe_input("pump", "3 bar")
        assert alarms.read_key_values() == [("pump", "silent"), ("pump", "back")]
