"""Functions that change their arguments in place do not affect other results.

An aggregator that appends to its list must not change values that were forwarded, cached, buffered
or joined before. Method: topologies with such functions, processed in batches, have the same
results as with functions that create new lists, called for one record at a time, depth-first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from support.batches.drivers import QueuedDriver
from support.batches.programs import Event, events

from millstream import (
    BufferConfig,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
)
from millstream.serdes import JSON, STRING


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class InPlace:
    """Functions that change their arguments."""

    def append(self, key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
        aggregate.append(value)
        return aggregate

    def remove(self, key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
        if value in aggregate:
            aggregate.remove(value)
        return aggregate

    def extend(self, one: list[Any], other: list[Any]) -> list[Any]:
        one.extend(other)
        return one

    def merge(self, key: Any, one: list[Any], other: list[Any]) -> list[Any]:
        other[:0] = one
        return other

    def mark(self, value: list[Any] | None) -> list[Any] | None:
        return None if value is None else self.extend(value, ["seen"])


class Pure(InPlace):
    """The same functions, creating new lists."""

    def append(self, key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
        return [*aggregate, value]

    def remove(self, key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
        return super().remove(key, value, list(aggregate))

    def extend(self, one: list[Any], other: list[Any]) -> list[Any]:
        return [*one, *other]

    def merge(self, key: Any, one: list[Any], other: list[Any]) -> list[Any]:
        return [*one, *other]


def lists(name: str | None = None) -> Materialized[Any, Any]:
    return Materialized(name, kind="in_memory", key=STRING, value=JSON)


def add_sink(table: Any, use: InPlace) -> None:
    stream = table.to_stream().map(lambda key, value: (str(key), value))
    stream.map_values(use.mark).to("out", key=STRING, value=JSON)


def grouped(builder: StreamsBuilder, topic: str = "in-0") -> Any:
    return builder.stream(topic, key=STRING, value=STRING).group_by_key(key=STRING, value=STRING)


#: Builds a topology from such functions.
Build = Callable[[StreamsBuilder, InPlace], None]


def plain(builder: StreamsBuilder, use: InPlace) -> None:
    add_sink(grouped(builder).aggregate(list, use.append, store=lists()), use)


def in_two_stores(builder: StreamsBuilder, use: InPlace) -> None:
    table = grouped(builder).aggregate(list, use.append, store=lists())
    add_sink(table.filter(lambda key, value: len(value) != 2, store=lists("filtered")), use)


def reduced(builder: StreamsBuilder, use: InPlace) -> None:
    stream = builder.stream("in-0", key=STRING, value=STRING).map_values(lambda value: [value])
    # The first value of a key is written here and also becomes the aggregate.
    stream.to("raw", key=STRING, value=JSON)
    add_sink(stream.group_by_key(key=STRING, value=JSON).reduce(use.extend, store=lists()), use)


def windowed(windows: Any) -> Build:
    def build(builder: StreamsBuilder, use: InPlace) -> None:
        add_sink(
            grouped(builder).windowed_by(windows).aggregate(list, use.append, store=lists()), use
        )

    return build


def sessions(builder: StreamsBuilder, use: InPlace) -> None:
    windowed_by = grouped(builder).windowed_by(SessionWindows(ms(2), grace=ms(5)))
    add_sink(windowed_by.aggregate(list, use.append, session_merger=use.merge, store=lists()), use)


def cogrouped(builder: StreamsBuilder, use: InPlace) -> None:
    both = grouped(builder).cogroup(use.append).cogroup(grouped(builder, "in-1"), use.append)
    add_sink(both.aggregate(list, store=lists()), use)


def table_grouped(builder: StreamsBuilder, use: InPlace) -> None:
    table = builder.table("in-0", key=STRING, value=STRING)
    by_value = table.group_by(lambda key, value: (value, key), key=STRING, value=STRING)
    add_sink(by_value.aggregate(list, use.append, use.remove, store=lists()), use)


def suppressed(builder: StreamsBuilder, use: InPlace) -> None:
    windows = grouped(builder).windowed_by(TimeWindows(ms(3)))
    table = windows.aggregate(list, use.append, store=lists())
    add_sink(table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())), use)


def suppressed_sessions(builder: StreamsBuilder, use: InPlace) -> None:
    windows = grouped(builder).windowed_by(SessionWindows(ms(2)))
    table = windows.aggregate(list, use.append, session_merger=use.merge, store=lists())
    kept = table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    add_sink(kept.filter(lambda key, value: len(value) > 1), use)


def regrouped(builder: StreamsBuilder, use: InPlace) -> None:
    table = grouped(builder).aggregate(list, use.append, store=lists())
    for _ in range(2):
        by_key = table.group_by(lambda key, value: (key, str(value)), key=STRING, value=STRING)
        table = by_key.aggregate(list, use.append, use.remove, store=lists())
    add_sink(table, use)


def regrouped_sessions(builder: StreamsBuilder, use: InPlace) -> None:
    windows = grouped(builder).windowed_by(SessionWindows(ms(2), grace=ms(5)))
    table = windows.aggregate(list, use.append, session_merger=use.merge, store=lists())
    by_key = table.group_by(lambda key, value: (key.key, str(value)), key=STRING, value=STRING)
    add_sink(by_key.aggregate(list, use.append, use.remove, store=lists()), use)


def versioned(builder: StreamsBuilder, use: InPlace) -> None:
    store = Materialized("versions", history_retention=ms(100), key=STRING, value=JSON)
    table = grouped(builder).aggregate(list, use.append, store=store)
    by_key = table.group_by(lambda key, value: (key, str(value)), key=STRING, value=STRING)
    add_sink(by_key.aggregate(list, use.append, use.remove, store=lists()), use)


def suppressed_for_a_time(builder: StreamsBuilder, use: InPlace) -> None:
    table = grouped(builder).aggregate(list, use.append, store=lists())
    add_sink(table.suppress(Suppressed.until_time_limit(ms(2), BufferConfig.max_records(100))), use)


def joined_tables(builder: StreamsBuilder, use: InPlace) -> None:
    one = grouped(builder).aggregate(list, use.append, store=lists())
    other = grouped(builder, "in-1").aggregate(list, use.append, store=lists())
    add_sink(one.left_join(other, lambda left, right: use.extend(left or [], right or [])), use)


def joined_streams(builder: StreamsBuilder, use: InPlace) -> None:
    one = grouped(builder).aggregate(list, use.append, store=lists()).to_stream()
    other = builder.stream("in-1", key=STRING, value=STRING)
    windows = JoinWindows(ms(3), grace=ms(3))
    serdes: dict[str, Any] = {"key": STRING, "value": JSON, "other_value": STRING}
    joined = one.left_join(other, lambda left, right: [*(left or []), right], windows, **serdes)
    add_sink(joined.to_table(key=STRING, value=JSON), use)


class Collect(Processor[Any, Any, Any, Any]):
    """Stores a list for each key, and may change the list that it has read."""

    def __init__(self, use: InPlace) -> None:
        self._use = use

    def init(self, context: Any) -> None:
        self._context = context
        self._store = context.get_state_store("lists")

    def process(self, record: Record[Any, Any]) -> None:
        if record.key is not None:
            collected = self._use.append(
                record.key, record.value, self._store.get(record.key) or []
            )
            self._store.put(record.key, collected)
            self._context.forward(record.with_value(collected))


def processed(builder: StreamsBuilder, use: InPlace) -> None:
    supplier = Stores.in_memory_key_value("lists")
    builder.add_state_store(Stores.key_value_builder(supplier, STRING, JSON))
    for topic in ("in-0", "in-1"):
        stream = builder.stream(topic, key=STRING, value=STRING)
        collected = stream.process(lambda: Collect(use), stores=("lists",))
        add_sink(collected.to_table(key=STRING, value=JSON), use)


TOPOLOGIES: dict[str, Build] = {
    "aggregate": plain,
    "two stores": in_two_stores,
    "reduce": reduced,
    "tumbling": windowed(TimeWindows(ms(3), grace=ms(2))),
    "hopping": windowed(TimeWindows(ms(4), advance=ms(2), grace=ms(2))),
    "sliding": windowed(SlidingWindows(ms(3), grace=ms(5))),
    "unlimited": windowed(UnlimitedWindows()),
    "sessions": sessions,
    "cogroup": cogrouped,
    "grouped table": table_grouped,
    "suppressed until closed": suppressed,
    "suppressed sessions": suppressed_sessions,
    "regrouped": regrouped,
    "regrouped sessions": regrouped_sessions,
    "suppressed for a time": suppressed_for_a_time,
    "joined tables": joined_tables,
    "joined streams": joined_streams,
    "processor": processed,
}


def written(
    build: Build,
    use: InPlace,
    queued: list[Event],
    batch_size: int,
    *,
    cache_bytes: int,
) -> Any:
    """Return the records written to all topics, including internal ones."""
    builder = StreamsBuilder()
    build(builder, use)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        config = StreamsConfig(
            application_id="app",
            bootstrap_servers="not-used:9092",
            state_dir=folder,
            default_dsl_store="in_memory",
            statestore_cache_max_bytes=cache_bytes,
        )
        topology = builder.build()
        plain = isinstance(use, Pure)
        driver = QueuedDriver(topology, config, batch_size=batch_size, plain=plain)
        stack.callback(driver.close)
        read = {topic for part in topology._subtopologies() for topic in part.source_topics}
        wanted = [event for event in queued if event.topic in read]
        # Entries that the first commit flushed change before the second commit.
        for part in (wanted[: len(wanted) // 2], wanted[len(wanted) // 2 :]):
            for event in part:
                key, value = STRING.serialize("", event.key), STRING.serialize("", event.value)
                driver.feed(event.topic, key, value, event.timestamp)
            driver.finish()
        return driver.written()


@pytest.mark.parametrize("cache_bytes", [0, 10_000_000])
@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=15, deadline=None)
@given(queued=events())
def test_in_place_changes_do_not_affect_other_results(
    name: str, cache_bytes: int, queued: list[Event]
) -> None:
    """Detects objects that are shared between stores, buffers and forwarded records."""
    build = TOPOLOGIES[name]
    expected = written(build, Pure(), queued, 1, cache_bytes=cache_bytes)
    for size in (1, 7, 1_000):
        assert written(build, InPlace(), queued, size, cache_bytes=cache_bytes) == expected


def test_replaced_versions_of_an_aggregate_do_not_change() -> None:
    """A single example, since versioned stores are on disk and slow."""
    queued = [Event("in-0", "k", value, time) for time, value in enumerate("abc")]
    expected = written(versioned, Pure(), queued, 1, cache_bytes=0)
    assert written(versioned, InPlace(), queued, 7, cache_bytes=0) == expected
