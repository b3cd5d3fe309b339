"""The mock context records the calls of a processor, and has real stores."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import IllegalStateError, StreamsError
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.processor.punctuation import PunctuationType
from millstream.record import FixedKeyRecord, Record, RecordMetadata
from millstream.serdes import LONG, STRING
from millstream.state.stores import Stores
from millstream.testing import MockProcessorContext


class Counter(Processor[str, str, str, int]):
    """Counts by key, forwards counts above one to "big", and all counts once per second."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.counts = context.get_state_store("counts")
        self.schedule = context.schedule(
            timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, self.forward_counts
        )

    def process(self, record: Record[str, str]) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count), "big" if count > 1 else None)
        self.context.commit()

    def forward_counts(self, time_ms: int) -> None:
        for key, count in self.counts.all():
            self.context.forward(Record(key, count, time_ms))
        self.schedule.cancel()


@pytest.mark.parametrize("supplier", [Stores.persistent_key_value, Stores.in_memory_key_value])
def test_calls_of_a_processor_are_recorded(supplier: Any) -> None:
    with MockProcessorContext[str, int]() as context:
        store = context.add_state_store(Stores.key_value_builder(supplier("counts"), STRING, LONG))
        folder = context.state_dir
        processor = Counter()
        processor.init(context)
        assert not context.committed
        for key in "aba":
            processor.process(Record(key, "v", 5))
        assert context.committed
        assert [(f.record.key, f.record.value, f.child) for f in context.forwarded()] == [
            ("a", 1, None),
            ("b", 1, None),
            ("a", 2, "big"),
        ]
        assert len(context.forwarded("big")) == 3
        assert len(context.forwarded("other")) == 2
        context.reset_forwards()
        context.reset_commit()
        (schedule,) = context.scheduled_punctuators()
        assert (schedule.interval, schedule.cancelled) == (timedelta(seconds=1), False)
        schedule.punctuator(9)
        assert [f.record for f in context.forwarded()] == [Record("a", 2, 9), Record("b", 1, 9)]
        assert schedule.cancelled
        assert not context.committed
        assert store.get("a") == 2
    assert not store.is_open
    assert not folder.exists()


def test_time_and_record_metadata_are_set_by_the_test(tmp_path: Path) -> None:
    context = MockProcessorContext[str, str](state_dir=tmp_path)
    assert context.record_metadata() is None
    for method in (context.current_stream_time_ms, context.current_system_time_ms):
        with pytest.raises(IllegalStateError, match="Set it first"):
            method()
    context.set_record_metadata("in", 1, 2)
    context.set_current_stream_time_ms(3)
    context.set_current_system_time_ms(4)
    assert context.record_metadata() == RecordMetadata("in", 1, 2)
    assert (context.current_stream_time_ms(), context.current_system_time_ms()) == (3, 4)
    assert context.state_dir == tmp_path


def test_test_double_can_replace_a_store() -> None:
    context = MockProcessorContext[str, str]()
    double = {"a": 1}
    with pytest.raises(ValueError, match="no name"):
        context.add_state_store(double)
    context.add_state_store(double, name="counts")
    assert context.get_state_store("counts") is double
    with pytest.raises(StreamsError, match=r"no store 'count'\. The stores .*: counts\. Did you"):
        context.get_state_store("count")


def test_fixed_key_processors_are_supported() -> None:
    class Upper(FixedKeyProcessor[str, str, str]):
        def process(self, record: FixedKeyRecord[str, str]) -> None:
            self.context.forward(record.with_value(record.value.upper()))

    context = MockProcessorContext[str, str]()
    processor = Upper()
    processor.init(context)
    processor.process(FixedKeyRecord("k", "v", 1, [("h", b"1")]))
    assert context.forwarded()[0].record == FixedKeyRecord("k", "V", 1, [("h", b"1")])
    assert context.forwarded()[0].record != Record("k", "V", 1, [("h", b"1")])
    with pytest.raises(TypeError, match="forward"):
        context.forward("V")  # type: ignore[arg-type]
