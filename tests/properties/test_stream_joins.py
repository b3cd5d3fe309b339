"""Batched stream-stream joins have the same results as record-at-a-time joins.

Method: random records of both sides, some of which are late, have no key or value, or make a
function or serde fail. They are processed in batches of random sizes, with commits in between, and
compared with the same operators called depth-first for one record at a time. Everything observable
is compared: results, changelogs, store contents, dropped records and failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.batches.drivers import QueuedDriver, SkippedRecords
from support.effort import EXAMPLES

from millstream import JoinWindows, StreamsBuilder, StreamsConfig, Topology
from millstream.config.validation import SINGLE_STORE_SELF_JOIN
from millstream.operators.joins import stream_join_window
from millstream.serdes import STRING, Serde
from millstream.state.opening import store_layers
from millstream.state.storage.overlay import OverlayStore
from millstream.state.windows.duplicate_windows import SegmentedDuplicates
from millstream.testing.driver_topics import CapturedRecord

# Segments are at least a minute long: only distant times make some of them expire.
times = st.one_of(
    st.integers(0, 40).map(lambda n: 1_000 * n),
    st.integers(0, 60).map(lambda n: 10_000 * n),
    st.integers(100_000, 100_020),
)
#: Most records are regular, since an irregular one makes its whole batch run record by record.
keys = st.sampled_from([b"a", b"a", b"a", b"a", b"ab", None])
values = st.sampled_from([*(b"%d" % n for n in range(10)), b"bad", b"unreadable", None])
special_keys = keys | st.just(b"odd")
special_values = values | st.sampled_from([b"odd", b"gone"])
#: Topic, key, value, time, and whether it has a header.
Event = tuple[str, bytes | None, bytes | None, int, bool]
topics = st.sampled_from(["left", "right"])


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Event], list[int], list[bool]]:
    """Create records, batch sizes, and whether a commit follows each batch."""
    is_special, is_wild = draw(st.sampled_from([False, False, True])), draw(st.booleans())
    events = st.tuples(
        topics,
        special_keys if is_special else keys,
        special_values if is_special else values,
        times,
        st.booleans(),
    )
    records = draw(st.lists(events, min_size=draw(st.sampled_from([1, 30, 60])), max_size=60))
    if not is_wild:
        # Records are rarely late, as usual.
        now, steps = 0, st.sampled_from([0, 0, 1, 500, 3_000, 20_000])
        late = st.sampled_from([0, 0, 0, 0, 0, 2_000, 100_000])
        for index, (topic, key, value, _, header) in enumerate(records):
            now += draw(steps)
            records[index] = (topic, key, value, max(0, now - draw(late)), header)
    sizes: list[int] = []
    while sum(sizes) < len(records):
        sizes.append(draw(st.sampled_from([1, 6, 25, 60])))
    return records, sizes, [draw(st.booleans()) for _ in sizes]


@dataclass(frozen=True)
class Join:
    """A join.

    Args:
        kind: the method of the stream, or `self`.
        store: the type of the stores.
        before_ms: the maximum time that a partner may be earlier.
        after_ms: the maximum time that a partner may be later.
        grace_ms: the grace period.
        recent_bytes: the memory for recent records of RocksDB stores.
    """

    kind: str
    store: Literal["rocksdb", "in_memory"]
    before_ms: int
    after_ms: int
    grace_ms: int
    recent_bytes: int


joins = st.builds(
    Join,
    kind=st.sampled_from(["join", "join", "left_join", "outer_join", "self"]),
    store=st.sampled_from(["rocksdb", "in_memory"]),
    before_ms=st.sampled_from([0, 5_000, 20_000]),
    after_ms=st.sampled_from([0, 5_000, 20_000]),
    grace_ms=st.sampled_from([0, 1_000, 50_000, 200_000]),
    recent_bytes=st.sampled_from([1_000, 5_000, 1_000_000]),
)


def serialize_or_fail(topic: str, value: str) -> bytes | None:
    if value == "odd":
        raise ValueError(value)
    return None if value == "gone" else value.encode()


class ValueReader:
    """Deserializes all values, or fails for some of them."""

    reads_all = False

    def read(self, topic: str, data: bytes) -> str:
        if data == b"unreadable" and not self.reads_all:
            raise ValueError(data)
        return data.decode()


KEY: Final[Serde[str]] = Serde(serialize_or_fail, lambda topic, data: data.decode(), immutable=True)


def topology_of(join: Join, calls: list[tuple[Any, Any]], reader: ValueReader) -> Topology:
    def joined(one: str | None, other: str | None) -> str:
        calls.append((one, other))
        if "bad" in (one, other):
            raise ValueError("bad")
        return f"{one}+{other}"

    value: Serde[str] = Serde(serialize_or_fail, reader.read, immutable=True)
    builder = StreamsBuilder(optimize=SINGLE_STORE_SELF_JOIN)
    windows = JoinWindows(
        timedelta(0),
        before=timedelta(milliseconds=join.before_ms),
        after=timedelta(milliseconds=join.after_ms),
        grace=timedelta(milliseconds=join.grace_ms),
    )
    left = builder.stream("left", key=STRING, value=STRING)
    right = left if join.kind == "self" else builder.stream("right", key=STRING, value=STRING)
    method = getattr(left, "join" if join.kind == "self" else join.kind)
    method(right, joined, windows, key=KEY, value=value, other_value=value, store_name="s").to(
        "out", key=STRING, value=STRING
    )
    return builder.build()


@dataclass
class Observed:
    """Everything observable of a run."""

    written: dict[str, list[CapturedRecord]]
    calls: list[tuple[Any, Any]]
    failures: list[tuple[Any, ...]]
    stores: dict[str, Any]
    dropped: float


def run(
    join: Join,
    records: Sequence[Event],
    sizes: Sequence[int],
    *,
    plain: bool,
    commits: Sequence[bool],
) -> Observed:
    calls: list[tuple[Any, Any]] = []
    failures, reader = SkippedRecords(type), ValueReader()
    config = StreamsConfig(
        application_id="joins",
        bootstrap_servers="not-used:9092",
        default_dsl_store=join.store,
        processing_exception_handler=failures,
    )

    def small(base: OverlayStore, **given: Any) -> SegmentedDuplicates:
        return SegmentedDuplicates(base, **{**given, "recent_bytes": join.recent_bytes})

    with (
        mock.patch.object(store_layers, "SegmentedDuplicates", small),
        mock.patch.object(stream_join_window, "MIN_RECORDS", 1),
        QueuedDriver(topology_of(join, calls, reader), config, batch_size=1, plain=plain) as driver,
    ):
        start = 0
        for size, commit in zip(sizes, commits, strict=True):
            for topic, key, value, time, header in records[start : start + size]:
                headers = (("h", value),) if header else ()
                if join.kind != "self" or topic == "left":
                    driver.feed(topic, key, value, time, headers)
            start += size
            while driver.is_ready:
                driver.step(1 if plain else size)
            if commit:
                driver.commit()
        driver.commit()
        dropped = sum(
            value
            for name, value in driver.metrics().items()
            if name.name == "dropped-records-total"
        )
        reader.reads_all = True
        stores = {
            name: list(store.all())
            for name, store in driver.get_all_state_stores().items()
            if "shared" not in name
        }
        written = {topic: list(records) for topic, records in driver.outputs.items()}
        return Observed(written, calls, failures.seen, stores, dropped)


def on(topic: str, *at: int) -> list[Event]:
    return [(topic, b"a", b"%d" % time, time, False) for time in at]


#: The second batch expires the record that its last record would match.
EXPIRING: Final = [*on("left", 0, 49_999, 50_001), *on("right", 50_000, 0)]
#: Only the last matching record of the second batch is in memory.
ON_DISK: Final = [*on("left", 0, 4_000, 8_000, 12_000, 16_000), *on("right", 16_000, 16_001)]


@settings(max_examples=EXAMPLES, deadline=None)
@given(join=joins, batching=batches())
@example(Join("join", "rocksdb", 5_000, 5_000, 0, 1_000_000), (EXPIRING, [1, 4], [False] * 2))
@example(Join("join", "in_memory", 5_000, 5_000, 0, 1_000_000), (EXPIRING, [1, 4], [False] * 2))
@example(Join("join", "rocksdb", 20_000, 20_000, 200_000, 1_000), (ON_DISK, [5, 2], [False] * 2))
def test_batches_are_joined_like_single_records(join: Join, batching: Any) -> None:
    """With late and expired records, records that are only on disk, and failing functions."""
    records, sizes, commits = batching
    expected = run(join, records, sizes, plain=True, commits=commits)
    together = run(join, records, sizes, plain=False, commits=commits)
    assert together == expected
