"""Silence: detect devices that have stopped sending.

Missing records do not trigger anything, and stream time only advances with records. Therefore a
processor stores the time of each device's latest record, and a wall-clock punctuation checks once a
minute which devices have been silent for too long. The processor raises one alarm for a silent
device, and clears it when the device sends a record.
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

MAX_SILENCE_MS = 5 * 60_000


class WatchForSilence(Processor[str, str, str, str]):
    """A processor that raises an alarm for silent devices.

    The store contains the time of each device's latest record, or, after an alarm, the negated time
    of the alarm.
    """

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.last_seen: KeyValueStore[str, int] = context.get_state_store("last-seen")
        context.schedule(timedelta(minutes=1), PunctuationType.WALL_CLOCK_TIME, self.check)

    def process(self, record: Record[str, str]) -> None:
        now_ms = self.context.current_system_time_ms()
        if (self.last_seen.get(record.key) or 0) < 0:
            self.context.forward(record.with_value("back"))
        self.last_seen.put(record.key, now_ms)

    def check(self, now_ms: int) -> None:
        with self.last_seen.all() as devices:
            silent = [name for name, ms in devices if 0 <= ms <= now_ms - MAX_SILENCE_MS]
        for name in silent:
            self.last_seen.put(name, -now_ms)
            self.context.forward(Record(name, "silent", now_ms))


def watched() -> Topology:
    """Write the alarms `silent` and `back` for devices that send measurements."""
    builder = StreamsBuilder()
    last_seen = Stores.key_value_builder(Stores.persistent_key_value("last-seen"), STRING, LONG)
    builder.add_state_store(last_seen)
    (
        builder.stream("measurements", key=STRING, value=STRING)
        .process(WatchForSilence, stores=["last-seen"], name="watch")
        .to("alarms", key=STRING, value=STRING)
    )
    return builder.build()


def test_one_alarm_and_its_end() -> None:
    with TopologyTestDriver(watched(), initial_wall_clock_ms=1_000) as driver:
        measurements = driver.create_input_topic("measurements", key=STRING, value=STRING)
        alarms = driver.create_output_topic("alarms", key=STRING, value=STRING)
        measurements.pipe_input("pump", "3 bar")
        for _ in range(10):
            driver.advance_wall_clock_time(timedelta(minutes=1))
        measurements.pipe_input("pump", "3 bar")
        assert alarms.read_key_values() == [("pump", "silent"), ("pump", "back")]
