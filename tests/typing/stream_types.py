"""What type checkers must infer for the DSL; test_stream_types.py runs one over this file.

An ignored error is an expected error: mypy reports ignores that are not needed.
"""

from __future__ import annotations

from typing import Any, assert_type

from millstream.serdes import LONG, STRING
from millstream.topology.builder import StreamsBuilder
from millstream.topology.grouped import KGroupedStream
from millstream.topology.materialized import Materialized
from millstream.topology.stream import KStream
from millstream.topology.table import KTable

builder = StreamsBuilder()
words = builder.stream("words", key=STRING, value=STRING)


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


def tables() -> None:
    grouped = words.group_by(lambda key, word: len(word), key=LONG)
    assert_type(grouped, KGroupedStream[int, str])
    assert_type(grouped.count(), KTable[int, int])
    assert_type(grouped.reduce(max), KTable[int, str])
    totals = words.group_by_key().aggregate(int, numbers, store=Materialized("t", value=LONG))
    assert_type(totals, KTable[str, int])
    assert_type(totals.to_stream(), KStream[str, int])
    assert_type(totals.to_stream(lambda key, total: (key, total)), KStream[tuple[str, int], int])


def mistakes() -> None:
    words.map_values(abs)  # type: ignore[arg-type]
    words.map_values(with_key)  # type: ignore[arg-type]
    words.merge(words.map_values(len))  # type: ignore[arg-type]
    words.group_by_key(key=LONG)  # type: ignore[arg-type]
    words.to("out", value=LONG)  # type: ignore[arg-type]
    words.group_by_key().count(store=7)  # type: ignore[arg-type]
