"""Invalid and late timestamps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bad_inputs.case import (
    Accepted,
    Case,
    Dropped,
    Family,
    Input,
    Outcome,
    Raises,
    Result,
    ms,
    process,
)
from bad_inputs.nulls import NEAR, SECOND, TEXT, both, other, text
from millstream.errors import ProcessingError, StreamsError

LATEST = 2**63 - 1
EXTRACTOR_ADVICE = "whole milliseconds since the epoch"


def extracted(time: Any) -> Any:
    """Process a record with a timestamp extractor that returns, or raises, `time`."""

    def extract(record: Any, partition_time: int) -> Any:
        if isinstance(time, Exception):
            raise time
        return time

    def build(builder: Any) -> None:
        stream = builder.stream("in", timestamp_extractor=extract, **TEXT)
        stream.process(Stamps).to("out", **TEXT)

    return process(build, Input())


class Stamps(ms.Processor):  # type: ignore[misc]
    """Forwards each record's timestamp as its value."""

    def process(self, record: Any) -> None:
        self.context.forward(record.with_value(str(record.timestamp)))


class Forwards(ms.Processor):  # type: ignore[misc]
    """Forwards a record with another timestamp."""

    time: Any = -1

    def process(self, record: Any) -> None:
        self.context.forward(ms.Record(record.key, record.value, self.time))


class ForwardsText(Forwards):
    """Forwards a record with text as its timestamp."""

    time = "now"


def stamped(*times: Any) -> Any:
    """Process records with these timestamps."""
    return process(
        lambda b: b.stream("in", **TEXT).process(Stamps).to("out", **TEXT),
        *[Input(timestamp=time) for time in times],
    )


def forwarded(processor: Any) -> Any:
    return process(lambda b: b.stream("in", **TEXT).process(processor).to("out", **TEXT), Input())


def late(windows: Any) -> Any:
    """Process a record, a much later one, and one that is too late for the first one's windows."""

    def build(builder: Any) -> None:
        text(builder.stream("in", **TEXT).group_by_key().windowed_by(windows).count())

    return process(build, Input(timestamp=0), Input(timestamp=100_000), Input(timestamp=500))


def late_join() -> Any:
    def build(builder: Any) -> None:
        text(builder.stream("in", **TEXT).join(other(builder), both, NEAR))

    return process(build, Input(timestamp=100_000), Input(timestamp=0))


def late_for_history() -> Result:
    """Put a record into a versioned store after the end of its history retention."""

    def build(builder: Any) -> None:
        store = ms.Stores.persistent_versioned("kept", timedelta(seconds=1))
        text(builder.table("in", store=ms.Materialized(supplier=store), **TEXT))

    found: Result = process(build, Input(timestamp=100_000_000), Input(b"old", timestamp=0))()
    return found


def far_ahead() -> Any:
    """Process a record from the year 292,278,994, and a current one."""

    def build(builder: Any) -> None:
        windows = ms.TimeWindows(SECOND, grace=SECOND)
        text(builder.stream("in", **TEXT).group_by_key().windowed_by(windows).count())

    return process(build, Input(timestamp=LATEST - 10_000), Input(timestamp=1_700_000_000_000))


def case(id: str, description: str, run: Any, outcome: Outcome) -> Case:
    return Case(id, description, run, outcome)


def extractor(id: str, description: str, time: Any, *parts: str) -> Case:
    return Case(id, description, extracted(time), Raises(StreamsError, [*parts, EXTRACTOR_ADVICE]))


WIDE = timedelta(seconds=1)
FAMILY = Family(
    "Timestamps",
    "Every record that is dropped because of its timestamp is counted.",
    [
        case("zero", "the timestamp 0", stamped(0), Accepted([("k", "0")])),
        case(
            "largest",
            "the largest possible timestamp",
            stamped(LATEST),
            Accepted([("k", str(LATEST))]),
        ),
        case(
            "backwards", "decreasing timestamps", stamped(5, 3), Accepted([("k", "5"), ("k", "3")])
        ),
        extractor("text", "a timestamp extractor that returns text", "now", "returned 'now'"),
        extractor("none", "an extractor that returns None", None, "returned None"),
        extractor("seconds", "an extractor that returns fractional seconds", 1.5, "returned 1.5"),
        extractor("bool", "an extractor that returns a bool", True, "returned True"),
        extractor("raises", "an extractor that raises", KeyError("ts"), "KeyError: 'ts'"),
        extractor(
            "beyond", "an extractor that returns more than 2^63 - 1", 2**63, "greater than 2^63 - 1"
        ),
        case(
            "negative", "an extractor that returns a negative number", extracted(-5), Dropped(1, [])
        ),
        case(
            "forward-negative",
            "a processor that forwards a negative timestamp",
            forwarded(Forwards),
            Raises(ProcessingError, ["timestamp must not be negative", "key 'k'"]),
        ),
        case(
            "forward-text",
            "a processor that forwards text as the timestamp",
            forwarded(ForwardsText),
            Raises(ProcessingError, ["timestamp must be an int", "'now'"]),
        ),
        case(
            "late-window",
            "a record too late for its window",
            late(ms.TimeWindows(SECOND)),
            Dropped(1, [("[k@0/1000]", "1"), ("[k@100000/101000]", "1")]),
        ),
        case(
            "late-session",
            "a record too late for its session",
            late(ms.SessionWindows(SECOND)),
            Dropped(1, [("[k@0/0]", "1"), ("[k@100000/100000]", "1")]),
        ),
        case(
            "late-sliding",
            "a record too late for its sliding windows",
            late(ms.SlidingWindows(SECOND)),
            Dropped(1, [("[k@0/1000]", "1"), ("[k@99000/100000]", "1")]),
        ),
        case("late-join", "a record too late for a join of streams", late_join(), Dropped(1, [])),
        case(
            "late-version",
            "a record older than the history of its versioned table",
            late_for_history,
            Dropped(1, [("k", "v")]),
        ),
        case(
            "far-ahead",
            "a record from the far future, after which all others are late",
            far_ahead(),
            Dropped(1, [("[k@9223372036854765000/9223372036854766000]", "1")]),
        ),
    ],
)
