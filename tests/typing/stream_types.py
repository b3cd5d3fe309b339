"""The types that type checkers must infer for the DSL; test_stream_types.py checks this file.

An ignored error is an expected error: mypy reports ignores that are not needed.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Never, assert_type

from millstream.config.streams_config import StreamsConfig
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.processor.processor_context import FixedKeyProcessorContext, ProcessorContext
from millstream.record import FixedKeyRecord, Record, ValueAndTimestamp
from millstream.serdes import JSON, LONG, STRING, Serde, avro, json_schema, protobuf
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.keyvalue.key_value_store import KeyValueStore
from millstream.state.storage.iterators import KeyValueIterator
from millstream.state.stores import Stores
from millstream.state.windows.session_store import SessionStore
from millstream.state.windows.window_store import WindowStore
from millstream.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.global_table import GlobalKTable
from millstream.topology.dsl.streams_and_tables import (
    BranchedKStream,
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
)
from millstream.topology.options.materialized import Materialized
from millstream.topology.options.suppressed import BufferConfig, Suppressed
from millstream.topology.options.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from millstream.windowed import Windowed

builder = StreamsBuilder()
words = builder.stream("words", key=STRING, value=STRING)


async def looked_up(word: str) -> int:
    return len(word)


async def looked_up_by_key(key: str, word: str) -> float:
    return len(word) / len(key)


def async_and_batched_values() -> None:
    assert_type(words.map_async(looked_up), KStream[str, int])
    assert_type(words.map_async(looked_up_by_key, with_key=True), KStream[str, float])
    assert_type(words.map_async(len, concurrency=5), KStream[str, int])
    assert_type(words.map_async(lambda key, word: key + word, with_key=True), KStream[str, str])
    assert_type(words.map_batches(lambda batch: batch), KStream[str, Any])
    words.map_async(looked_up_by_key)  # type: ignore[arg-type]


def sources() -> None:
    assert_type(words, KStream[str, str])
    assert_type(builder.stream("a", key=STRING), KStream[str, Any])
    assert_type(builder.stream("a", value=LONG), KStream[Any, int])
    assert_type(builder.stream("a"), KStream[Any, Any])


def mapped(key: str, value: str) -> tuple[int, float]:
    return len(key), float(value)


def mapped_many(key: str, value: str) -> list[tuple[int, float]]:
    return [mapped(key, value)]


def with_key(key: str, value: str) -> float:
    return float(key + value)


def numbers(key: str, value: str, total: int) -> int:
    return total + len(key) + len(value)


def records() -> None:
    assert_type(words.filter(lambda key, word: len(word) > 3), KStream[str, str])
    assert_type(words.map_values(len), KStream[str, int])
    assert_type(words.map_values(with_key, with_key=True), KStream[str, float])
    assert_type(words.flat_map_values(str.split), KStream[str, str])
    assert_type(words.map(mapped), KStream[int, float])
    assert_type(words.flat_map(mapped_many), KStream[int, float])
    assert_type(words.select_key(lambda key, word: len(word)), KStream[int, str])
    assert_type(words.merge(words.peek(print)), KStream[str, str])
    assert_type(words.branch(lambda key, word: bool(word)), list[KStream[str, str]])
    assert_type(words.split().no_default_branch(), dict[str, KStream[str, str]])
    assert_type(words.repartition(partitions=3), KStream[str, str])
    assert_type(words.filter_not(lambda key, word: not word), KStream[str, str])
    assert_type(words.flat_map_values(characters, with_key=True), KStream[str, int])
    assert_type(words.split(), BranchedKStream[str, str])
    short = words.split().branch(lambda key, word: len(word) < 4, chain=lambda stream: stream)
    assert_type(short, BranchedKStream[str, str])
    assert_type(short.default_branch(), dict[str, KStream[str, str]])


def characters(key: str, value: str) -> list[int]:
    return [ord(character) for character in key + value]


def types_through_a_long_program() -> None:
    """The types of a long program, up to `KStream[str, int]`."""
    lengths = words.map_values(len)
    assert_type(lengths, KStream[str, int])
    assert_type(lengths.filter(lambda key, length: length > 3), KStream[str, int])
    assert_type(lengths.merge(lengths.peek(print)), KStream[str, int])
    assert_type(lengths.repartition(value=LONG), KStream[str, int])
    assert_type(lengths.group_by_key(value=LONG).reduce(max), KTable[str, int])
    assert_type(lengths.to_table(value=LONG), KTable[str, int])
    assert_type(lengths.join(lengths.to_table(), scaled), KStream[str, float])
    assert_type(lengths.process(Halve), KStream[str, float])
    lengths.for_each(print)
    lengths.print("lengths")
    lengths.to("lengths", value=LONG)
    lengths.to(lambda key, length, context: f"lengths-{length}", value=LONG)


def scaled(one: int, other: int) -> float:
    return one / other


class Halve(Processor[str, int, str, float]):
    """Two type parameters for the input, two for the output."""

    def init(self, context: ProcessorContext[str, float]) -> None:
        super().init(context)
        self.seen: KeyValueStore[str, int] = context.get_state_store("seen")

    def process(self, record: Record[str, int]) -> None:
        assert_type(record.value, int)
        assert_type(self.seen.get(record.key), int | None)
        self.context.forward(record.with_value(record.value / 2))
        self.context.forward(Record("half", record.value, record.timestamp))
        self.context.forward(Record("half", "no number", 0))  # type: ignore[arg-type]


class Digits(FixedKeyProcessor[str, int, str]):
    """Processors with a fixed key."""

    def init(self, context: FixedKeyProcessorContext[str, str]) -> None:
        super().init(context)

    def process(self, record: FixedKeyRecord[str, int]) -> None:
        self.context.forward(record.with_value(str(record.value)))


def processors() -> None:
    lengths = words.map_values(len)
    assert_type(lengths.process(Halve, stores="seen"), KStream[str, float])
    assert_type(lengths.process(lambda: Halve(), stores=["seen"]), KStream[str, float])
    assert_type(lengths.process_values(Digits, name="digits"), KStream[str, str])
    words.process(Halve)  # type: ignore[arg-type]
    words.process_values(Digits)  # type: ignore[arg-type]
    lengths.process_values(Halve)  # type: ignore[arg-type]


def stores(
    counts: KeyValueStore[str, ValueAndTimestamp],
    clicks: WindowStore[str, int],
    visits: SessionStore[str, int],
) -> None:
    assert_type(counts.get("a"), ValueAndTimestamp | None)
    assert_type(counts.range("a", "c"), KeyValueIterator[str, ValueAndTimestamp])
    assert_type(clicks.fetch("a", 0), int | None)
    assert_type(clicks.fetch("a", 0, 1), KeyValueIterator[int, int])
    assert_type(clicks.all(), KeyValueIterator[Windowed[str], int])
    assert_type(visits.fetch("a"), KeyValueIterator[Windowed[str], int])
    counts.put("a", 1)  # type: ignore[arg-type]
    clicks.put(1, 1, 0)  # type: ignore[arg-type]


def drivers(driver: TopologyTestDriver) -> None:
    lines = driver.create_input_topic("lines", key=STRING, value=LONG)
    assert_type(lines, TestInputTopic[str, int])
    lines.pipe_input("k", "no number")  # type: ignore[arg-type]
    out = driver.create_output_topic("out", key=STRING, value=LONG)
    assert_type(out, TestOutputTopic[str, int])
    assert_type(out.read_record(), Record[str, int])
    assert_type(out.read_key_values(), list[tuple[str, int]])
    assert_type(out.read_key_values_to_map(), dict[str, int])


def tables() -> None:
    grouped = words.group_by(lambda key, word: len(word), key=LONG)
    assert_type(grouped, KGroupedStream[int, str])
    assert_type(grouped.count(), KTable[int, int])
    assert_type(grouped.reduce(max), KTable[int, str])
    totals = words.group_by_key().aggregate(int, numbers, store=Materialized("t", value=LONG))
    assert_type(totals, KTable[str, int])
    assert_type(totals.to_stream(), KStream[str, int])
    assert_type(totals.to_stream(lambda key, total: (key, total)), KStream[tuple[str, int], int])


def none_for_zero(number: int) -> int | None:
    """Return None to delete a row."""
    return number or None


def stores_of_tables() -> None:
    """A `Materialized` with types must match the types of the operation."""
    grouped = words.group_by_key()
    ages = builder.table("ages", key=STRING, value=LONG, store=Materialized("ages", value=LONG))
    assert_type(grouped.count(store=Materialized("c", key=STRING, value=LONG)), KTable[str, int])
    assert_type(grouped.count(store=Materialized("c", value=JSON)), KTable[str, int])
    assert_type(grouped.count(store=Materialized("c")), KTable[str, int])
    assert_type(
        ages.map_values(none_for_zero, store=Materialized("m", value=LONG)), KTable[str, int]
    )
    assert_type(ages.join(ages, sum_or_none, store=Materialized(value=LONG)), KTable[str, int])
    grouped.count(store=Materialized("c", value=STRING))  # type: ignore[arg-type]
    grouped.count(store=Materialized("c", key=LONG))  # type: ignore[arg-type]
    grouped.reduce(max, store=Materialized("r", value=LONG))  # type: ignore[arg-type]
    words.to_table(store=Materialized("t", value=LONG))  # type: ignore[arg-type]
    ages.filter(by_age, store=Materialized("f", value=STRING))  # type: ignore[arg-type]
    grouped.windowed_by(TimeWindows(timedelta(1))).count(store=Materialized("w", value=STRING))  # type: ignore[arg-type]
    choice = Materialized("anything")
    assert_type(choice, Materialized[Never, Never])
    assert_type(grouped.count(store=choice), KTable[str, int])
    assert_type(ages.map_values(str, store=choice), KTable[str, str])
    assert_type(grouped.aggregate(int, numbers, store=choice), KTable[str, int])
    ages.map_values(none_for_zero, store=Materialized("m", value=STRING))  # type: ignore[arg-type]
    ages.join(ages, sum_or_none, store=Materialized(value=STRING))  # type: ignore[arg-type]
    grouped.aggregate(int, numbers, store=Materialized(value=STRING))  # type: ignore[arg-type]
    visits = Stores.key_value_builder(Stores.in_memory_key_value("v"), STRING, LONG)
    assert_type(visits, KeyValueStoreBuilder[str, int])
    assert_type(visits.with_caching(True), KeyValueStoreBuilder[str, int])


def sum_or_none(one: int, other: int) -> int | None:
    return one + other or None


def by_age(key: str, age: int) -> bool:
    return bool(key) and age > 17


class Shout:
    """Transforms the values of a table."""

    def transform(self, key: str, value: str | None) -> float:
        return float(value or key)


def by_length(key: str, value: str) -> tuple[int, float]:
    return len(key), float(value)


def tables_from_topics() -> None:
    names = builder.table("names", key=STRING, value=STRING)
    ages = builder.table("ages", key=STRING, value=LONG, store="ages")
    assert_type(names, KTable[str, str])
    assert_type(builder.table("a", key=STRING), KTable[str, Any])
    assert_type(words.to_table(store="words"), KTable[str, str])
    assert_type(names.filter(lambda key, name: bool(name)), KTable[str, str])
    assert_type(names.filter_not(lambda key, name: key == name), KTable[str, str])
    assert_type(names.map_values(len, store="lengths"), KTable[str, int])
    assert_type(names.map_values(with_key, with_key=True), KTable[str, float])
    assert_type(names.transform_values(Shout), KTable[str, float])
    groups = names.group_by(by_length, key=LONG)
    assert_type(groups, KGroupedTable[int, float])
    assert_type(groups.count(), KTable[int, int])
    assert_type(groups.reduce(max, min), KTable[int, float])
    assert_type(groups.aggregate(str, adds, adds), KTable[int, str])
    assert_type(names.join(ages, joins), KTable[str, float])
    assert_type(names.left_join(ages, joins_left), KTable[str, float])
    assert_type(names.outer_join(ages, joins_outer), KTable[str, float])
    assert_type(names.join(groups.count(), joins, foreign_key=len), KTable[str, float])


def adds(group: int, value: float, total: str) -> str:
    return f"{group}{value}{total}"


def joins(name: str, age: int) -> float:
    return float(name) + age


def joins_left(name: str, age: int | None) -> float:
    return float(name) + (age or 0)


def joins_outer(name: str | None, age: int | None) -> float:
    return float(name or 0) + (age or 0)


def joins_key(key: str, name: str, age: int | None) -> float:
    return float(key + name) + (age or 0)


def streams_with_tables() -> None:
    ages = builder.table("ages", key=STRING, value=LONG)
    sizes = builder.global_table("sizes", key=LONG, value=LONG)
    assert_type(sizes, GlobalKTable[int, int])
    assert_type(words.join(ages, joins), KStream[str, float])
    assert_type(words.left_join(ages, joins_left), KStream[str, float])
    assert_type(words.left_join(ages, joins_key, with_key=True), KStream[str, float])
    assert_type(
        words.join(sizes, joins, key_selector=lambda key, word: len(word)), KStream[str, float]
    )


def streams_with_streams() -> None:
    numbered = builder.stream("numbered", key=STRING, value=LONG)
    near = JoinWindows(timedelta(minutes=1))
    assert_type(words.join(numbered, joins, near), KStream[str, float])
    assert_type(words.left_join(numbered, joins_left, near), KStream[str, float])
    assert_type(words.left_join(numbered, joins_key, near, with_key=True), KStream[str, float])
    assert_type(words.outer_join(numbered, joins_outer, near), KStream[str, float])
    late = Suppressed.until_time_limit(timedelta(seconds=1), BufferConfig.max_records(9))
    assert_type(words.group_by_key().count().suppress(late), KTable[str, int])


def foreign_keys() -> None:
    names = builder.table("names", key=STRING, value=STRING)
    ages = builder.table("ages", key=LONG, value=LONG)
    assert_type(names.join(ages, joins, foreign_key=len, store="joined"), KTable[str, float])
    assert_type(names.left_join(ages, joins_left, foreign_key=maybe_len), KTable[str, float])
    assert_type(
        names.left_join(ages, joins_left, foreign_key=key_and_len, with_key=True),
        KTable[str, float],
    )
    names.join(ages, joins, foreign_key=str.upper)  # type: ignore[arg-type]
    names.join(ages, joins, foreign_key=key_and_len)  # type: ignore[arg-type]
    names.left_join(ages, joins, foreign_key=len)  # type: ignore[arg-type]


def maybe_len(name: str) -> int | None:
    return len(name) or None


def key_and_len(key: str, name: str) -> int | None:
    return len(key + name)


def with_a_schema_registry() -> None:
    assert_type(avro({"type": "string"}, "http://registry"), Serde[Any])
    assert_type(avro("{}", "http://registry", to_dict=fields, from_dict=shout_of), Serde[Shout])
    assert_type(
        json_schema("{}", "http://registry", to_dict=fields, from_dict=shout_of), Serde[Shout]
    )
    assert_type(protobuf(Shout, {"url": "http://registry"}, is_key=True), Serde[Shout])


def fields(shout: Shout) -> dict[str, Any]:
    return vars(shout)


def shout_of(fields: dict[str, Any]) -> Shout:
    return Shout()


def append(key: str, word: str, seen: list[str]) -> list[str]:
    return [*seen, word]


def concat(key: str, one: list[str], other: list[str]) -> list[str]:
    return one + other


def windows() -> None:
    grouped = words.group_by_key()
    tumbling = grouped.windowed_by(TimeWindows(timedelta(minutes=1)))
    assert_type(tumbling, TimeWindowedKStream[str, str])
    final = tumbling.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    assert_type(final, TimeWindowedKStream[str, str])
    assert_type(tumbling.count(), KTable[Windowed[str], int])
    assert_type(tumbling.reduce(max), KTable[Windowed[str], str])
    assert_type(tumbling.aggregate(list, append), KTable[Windowed[str], list[str]])
    starts = tumbling.count().to_stream(lambda key, count: key.window.start_ms)
    assert_type(starts, KStream[int, int])
    sessions = grouped.windowed_by(SessionWindows(timedelta(minutes=1)))
    assert_type(sessions, SessionWindowedKStream[str, str])
    assert_type(sessions.count(), KTable[Windowed[str], int])
    assert_type(sessions.reduce(max), KTable[Windowed[str], str])
    final_visits = sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    assert_type(final_visits, SessionWindowedKStream[str, str])
    for_ever = grouped.windowed_by(UnlimitedWindows())
    assert_type(for_ever, TimeWindowedKStream[str, str])
    until_closed = Suppressed.until_window_closes(BufferConfig.unbounded())
    assert_type(tumbling.count().suppress(until_closed), KTable[Windowed[str], int])
    assert_type(tumbling.count().to_stream(), KStream[Windowed[str], int])
    assert_type(sessions.aggregate(list, append, concat), KTable[Windowed[str], list[str]])
    cogrouped = grouped.cogroup(append).cogroup(grouped, append)
    assert_type(cogrouped, CogroupedKStream[str, list[str]])
    assert_type(cogrouped.aggregate(list), KTable[str, list[str]])
    sliding = cogrouped.windowed_by(SlidingWindows(timedelta(minutes=1)))
    assert_type(sliding, TimeWindowedCogroupedKStream[str, list[str]])
    assert_type(sliding.aggregate(list), KTable[Windowed[str], list[str]])
    by_visit = cogrouped.windowed_by(SessionWindows(timedelta(minutes=1)))
    assert_type(by_visit, SessionWindowedCogroupedKStream[str, list[str]])
    assert_type(by_visit.aggregate(list, concat), KTable[Windowed[str], list[str]])


def settings() -> None:
    several = StreamsConfig(
        application_id="a", bootstrap_servers=["one:9092", "two:9092"], state_dir=Path("state")
    )
    assert_type(several.bootstrap_servers, str)
    assert_type(several.state_dir, str)
    StreamsConfig(application_id="a", bootstrap_servers=9092)  # type: ignore[arg-type]


def mistakes() -> None:
    names = builder.table("names", key=STRING, value=STRING)
    names.join(words, joins)  # type: ignore[call-overload]
    names.left_join(builder.table("a", key=LONG, value=LONG), joins_left)  # type: ignore[arg-type]
    names.group_by(lambda key, name: name)  # type: ignore[arg-type, return-value]
    names.map_values(abs)  # type: ignore[arg-type]
    words.map_values(abs)  # type: ignore[arg-type]
    words.left_join(words, str.__add__, JoinWindows(timedelta(1)))  # type: ignore[arg-type]
    words.join(words, str.__add__)  # type: ignore[call-overload]
    words.map_values(with_key)  # type: ignore[arg-type]
    words.merge(words.map_values(len))  # type: ignore[arg-type]
    words.group_by_key(key=LONG)  # type: ignore[arg-type]
    words.to("out", value=LONG)  # type: ignore[arg-type]
    words.group_by_key().count(store=7)  # type: ignore[arg-type]
    words.group_by_key().windowed_by(timedelta(minutes=1))  # type: ignore[call-overload]
    words.group_by_key().windowed_by(SessionWindows(timedelta(1))).aggregate(list, append)  # type: ignore[call-arg]
