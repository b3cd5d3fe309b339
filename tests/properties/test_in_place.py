"""Functions that change what they are given, as Python programmers write them, do no harm.

An aggregator that appends to its list must not change what was handed on, cached, buffered or
joined before. Method: such topologies in batches against the same operators called one record at a
time, depth-first, where everything is done with a record before the next one comes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from support.depth_first import depth_first_tasks
from support.programs import Event, events
from support.queued_driver import QueuedDriver

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


def append(key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
    aggregate.append(value)
    return aggregate


def remove(key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
    if value in aggregate:
        aggregate.remove(value)
    return aggregate


def extend(one: list[Any], other: list[Any]) -> list[Any]:
    one.extend(other)
    return one


def merge(key: Any, one: list[Any], other: list[Any]) -> list[Any]:
    return extend(one, other)


def lists(name: str | None = None) -> Materialized[Any, Any]:
    return Materialized(name, kind="in_memory", key=STRING, value=JSON)


def end(table: Any) -> None:
    """The changes go two ways, and one of them changes what it gets."""
    stream = table.to_stream().map(lambda key, value: (str(key), value))
    stream.map_values(lambda value: None if value is None else list(value)).map_values(
        lambda value: None if value is None else extend(value, ["seen"])
    ).to("out-0", key=STRING, value=JSON)
    stream.filter(lambda key, value: value is None or len(value) % 2 == 1).to(
        "out-1", key=STRING, value=JSON
    )


def grouped(builder: StreamsBuilder, topic: str = "in-0") -> Any:
    return builder.stream(topic, key=STRING, value=STRING).group_by_key(key=STRING, value=STRING)


def plain(builder: StreamsBuilder) -> None:
    end(grouped(builder).aggregate(list, append, store=lists()))


def in_two_stores(builder: StreamsBuilder) -> None:
    table = grouped(builder).aggregate(list, append, store=lists())
    end(table.filter(lambda key, value: len(value) != 2, store=lists("filtered")))


def reduced(builder: StreamsBuilder) -> None:
    stream = builder.stream("in-0", key=STRING, value=STRING).map_values(lambda value: [value])
    end(stream.group_by_key(key=STRING, value=JSON).reduce(extend, store=lists()))
    # The first value of a key becomes its aggregate, and goes another way as well.
    stream.to("out-2", key=STRING, value=JSON)


def windowed(windows: Any) -> Callable[[StreamsBuilder], None]:
    def build(builder: StreamsBuilder) -> None:
        end(grouped(builder).windowed_by(windows).aggregate(list, append, store=lists()))

    return build


def sessions(builder: StreamsBuilder) -> None:
    windowed_by = grouped(builder).windowed_by(SessionWindows(ms(2), grace=ms(5)))
    end(windowed_by.aggregate(list, append, session_merger=merge, store=lists()))


def cogrouped(builder: StreamsBuilder) -> None:
    both = grouped(builder).cogroup(append).cogroup(grouped(builder, "in-1"), append)
    end(both.aggregate(list, store=lists()))


def table_grouped(builder: StreamsBuilder) -> None:
    table = builder.table("in-0", key=STRING, value=STRING)
    by_value = table.group_by(lambda key, value: (value, key), key=STRING, value=STRING)
    end(by_value.aggregate(list, append, remove, store=lists()))


def suppressed(builder: StreamsBuilder) -> None:
    windows = grouped(builder).windowed_by(TimeWindows(ms(3)))
    table = windows.aggregate(list, append, store=lists())
    end(table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())))


def held_for_a_time(builder: StreamsBuilder) -> None:
    table = grouped(builder).aggregate(list, append, store=lists())
    end(table.suppress(Suppressed.until_time_limit(ms(2), BufferConfig.max_records(100))))


def joined_tables(builder: StreamsBuilder) -> None:
    one = grouped(builder).aggregate(list, append, store=lists())
    other = grouped(builder, "in-1").aggregate(list, append, store=lists())
    end(one.left_join(other, lambda left, right: extend(left or [], right or [])))


def joined_streams(builder: StreamsBuilder) -> None:
    one = grouped(builder).aggregate(list, append, store=lists()).to_stream()
    other = builder.stream("in-1", key=STRING, value=STRING)
    windows = JoinWindows(ms(3), grace=ms(3))
    serdes: dict[str, Any] = {"key": STRING, "value": JSON, "other_value": STRING}
    joined = one.left_join(other, lambda left, right: [*(left or []), right], windows, **serdes)
    end(joined.to_table(key=STRING, value=JSON))


class Collect(Processor[Any, Any, Any, Any]):
    """Keeps a list for each key and changes the one that it read."""

    def init(self, context: Any) -> None:
        self._context = context
        self._store = context.get_state_store("lists")

    def process(self, record: Record[Any, Any]) -> None:
        if record.key is not None:
            seen = self._store.get(record.key) or []
            seen.append(record.value)
            self._store.put(record.key, seen)
            self._context.forward(record.with_value(seen))


def processed(builder: StreamsBuilder) -> None:
    supplier = Stores.in_memory_key_value("lists")
    builder.add_state_store(Stores.key_value_builder(supplier, STRING, JSON))
    for topic in ("in-0", "in-1"):
        stream = builder.stream(topic, key=STRING, value=STRING)
        end(stream.process(Collect, stores=("lists",)).to_table(key=STRING, value=JSON))


TOPOLOGIES: dict[str, Callable[[StreamsBuilder], None]] = {
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
    "suppressed for a time": held_for_a_time,
    "joined tables": joined_tables,
    "joined streams": joined_streams,
    "processor": processed,
}


def written(
    build: Callable[[StreamsBuilder], None],
    queued: list[Event],
    batch_size: int,
    *,
    cache_bytes: int,
    plainly: bool = False,
) -> Any:
    """What the topology writes to all topics, internal ones included."""
    builder = StreamsBuilder()
    build(builder)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if plainly:
            stack.enter_context(depth_first_tasks())
        config = StreamsConfig(
            application_id="app",
            bootstrap_servers="not-used:9092",
            state_dir=folder,
            default_dsl_store="in_memory",
            statestore_cache_max_bytes=cache_bytes,
        )
        topology = builder.build()
        driver = QueuedDriver(topology, config, batch_size=batch_size)
        stack.callback(driver.close)
        read = {topic for part in topology.subtopologies() for topic in part.source_topics}
        wanted = [event for event in queued if event.topic in read]
        # What was flushed by the first commit is changed again before the second one.
        for part in (wanted[: len(wanted) // 2], wanted[len(wanted) // 2 :]):
            for event in part:
                topic = driver.create_input_topic(event.topic, key=STRING, value=STRING)
                topic.pipe_input(event.key, event.value, timestamp=event.timestamp)
            driver.finish()
        return driver.written()


@pytest.mark.parametrize("cache_bytes", [0, 10_000_000])
@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=15, deadline=None)
@given(queued=events())
def test_changing_in_place_changes_nothing_else(
    name: str, cache_bytes: int, queued: list[Event]
) -> None:
    """Hunts objects that are shared between a store, a buffer and what is on its way."""
    build = TOPOLOGIES[name]
    plainly = written(build, queued, 1, cache_bytes=cache_bytes, plainly=True)
    for size in (1, 7, 1_000):
        assert written(build, queued, size, cache_bytes=cache_bytes) == plainly
