"""Timestamps that are no times, or come at a bad moment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bad_inputs.case import (
    Accepted,
    Case,
    Dropped,
    Family,
    In,
    Outcome,
    Refused,
    Seen,
    ms,
    through,
)
from bad_inputs.nulls import NEAR, SECOND, TEXT, both, other, text
from millstream.errors import ProcessingError, StreamsError

LATEST = 2**63 - 1
EXTRACTOR_ADVICE = "whole milliseconds since the epoch"


def extracted(time: Any) -> Any:
    """A record whose timestamp extractor gives that, or raises it."""

    def extract(record: Any, partition_time: int) -> Any:
        if isinstance(time, Exception):
            raise time
        return time

    def build(builder: Any) -> None:
        stream = builder.stream("in", timestamp_extractor=extract, **TEXT)
        stream.process(Stamps).to("out", **TEXT)

    return through(build, In())


class Stamps(ms.Processor):  # type: ignore[misc]
    """Gives the time of each record as its value."""

    def process(self, record: Any) -> None:
        self.context.forward(record.with_value(str(record.timestamp)))


class Forwards(ms.Processor):  # type: ignore[misc]
    """Forwards a record with another time."""

    time: Any = -1

    def process(self, record: Any) -> None:
        self.context.forward(ms.Record(record.key, record.value, self.time))


class ForwardsText(Forwards):
    """The same with text as the time."""

    time = "now"


def stamped(*times: Any) -> Any:
    """Records of these times."""
    return through(
        lambda b: b.stream("in", **TEXT).process(Stamps).to("out", **TEXT),
        *[In(timestamp=time) for time in times],
    )


def forwarded(processor: Any) -> Any:
    return through(lambda b: b.stream("in", **TEXT).process(processor).to("out", **TEXT), In())


def late(windows: Any) -> Any:
    """A record, one much later, and one that is too late for the first one's windows."""

    def build(builder: Any) -> None:
        text(builder.stream("in", **TEXT).group_by_key().windowed_by(windows).count())

    return through(build, In(timestamp=0), In(timestamp=100_000), In(timestamp=500))


def late_join() -> Any:
    def build(builder: Any) -> None:
        text(builder.stream("in", **TEXT).join(other(builder), both, NEAR))

    return through(build, In(timestamp=100_000), In(timestamp=0))


def late_for_history() -> Seen:
    """A put into a versioned store that has forgotten that time."""

    def build(builder: Any) -> None:
        store = ms.Stores.persistent_versioned("kept", timedelta(seconds=1))
        text(builder.table("in", store=ms.Materialized(supplier=store), **TEXT))

    found: Seen = through(build, In(timestamp=100_000_000), In(b"old", timestamp=0))()
    return found


def far_ahead() -> Any:
    """A record from the year 292,278,994, and one of today."""

    def build(builder: Any) -> None:
        windows = ms.TimeWindows(SECOND, grace=SECOND)
        text(builder.stream("in", **TEXT).group_by_key().windowed_by(windows).count())

    return through(build, In(timestamp=LATEST - 10_000), In(timestamp=1_700_000_000_000))


def case(id: str, what: str, do: Any, outcome: Outcome) -> Case:
    return Case(id, what, do, outcome)


def extractor(id: str, what: str, time: Any, *told: str) -> Case:
    return Case(id, what, extracted(time), Refused(StreamsError, [*told, EXTRACTOR_ADVICE]))


WIDE = timedelta(seconds=1)
FAMILY = Family(
    "Times",
    "No record is left out for its time without being counted.",
    [
        case("zero", "the timestamp 0", stamped(0), Accepted([("k", "0")])),
        case(
            "largest",
            "the largest timestamp there is",
            stamped(LATEST),
            Accepted([("k", str(LATEST))]),
        ),
        case("backwards", "times that go back", stamped(5, 3), Accepted([("k", "5"), ("k", "3")])),
        extractor("text", "a timestamp extractor that gives text", "now", "gave 'now'"),
        extractor("none", "one that gives nothing", None, "gave None"),
        extractor("seconds", "one that gives seconds with a fraction", 1.5, "gave 1.5"),
        extractor("bool", "one that gives a truth value", True, "gave True"),
        extractor("raises", "one that raises", KeyError("ts"), "KeyError: 'ts'"),
        extractor("beyond", "one that gives more than 2^63 - 1", 2**63, "later than 2^63 - 1"),
        case("negative", "one that gives a negative number", extracted(-5), Dropped(1, [])),
        case(
            "forward-negative",
            "a processor that forwards a negative time",
            forwarded(Forwards),
            Refused(ProcessingError, ["timestamp must not be negative", "key 'k'"]),
        ),
        case(
            "forward-text",
            "a processor that forwards text as the time",
            forwarded(ForwardsText),
            Refused(ProcessingError, ["timestamp must be an int", "'now'"]),
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
            "a record from the far future, which makes all others late",
            far_ahead(),
            Dropped(1, [("[k@9223372036854765000/9223372036854766000]", "1")]),
        ),
    ],
)
