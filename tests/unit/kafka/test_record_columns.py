"""Fetched records as columns, from constructed messages."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from millstream.kafka.clients.record_columns import message_columns
from millstream.record import TopicPartition


def message(topic: str, partition: int, offset: int, **fields: Any) -> Message:
    fields.setdefault("key", b"k%d" % offset)
    fields.setdefault("value", b"v%d" % offset)
    fields.setdefault("timestamp", (1, 1_000 + offset))
    return Message(topic=topic, partition=partition, offset=offset, **fields)


A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_one_partition() -> None:
    """Columns are parallel and in order; consecutive offsets are a range."""
    messages = [message("a", 0, 7), message("a", 0, 8, key=None, value=None)]
    for assigned in (None, [A0], [A0, A1], [A0, B0]):
        (found,) = message_columns(messages, assigned).items()
        partition, columns = found
        assert partition == A0
        assert columns.keys == [b"k7", None]
        assert columns.values == [b"v7", None]
        assert columns.timestamps == [1_007, 1_008]
        assert columns.offsets == range(7, 9)
        assert columns.headers is None


def test_gaps_in_offsets() -> None:
    """Compaction and transaction markers leave gaps; then offsets are a list."""
    columns = message_columns([message("a", 0, 1), message("a", 0, 4)])[A0]
    assert list(columns.offsets) == [1, 4]
    columns = message_columns([message("a", 0, 3)])[A0]
    assert list(columns.offsets) == [3]


def test_interleaved_partitions() -> None:
    """Each partition keeps its order, and no record is lost."""
    messages = [
        message("a", 0, 1),
        message("a", 0, 2),
        message("b", 0, 9),  # the same partition number of another topic, next to it
        message("a", 1, 5),
        message("a", 0, 3),
        message("b", 0, 11),
        message("b", 0, 12),
    ]
    for assigned in (None, [A0, A1, B0]):
        columns = message_columns(messages, assigned)
        assert list(columns) == [A0, B0, A1]
        assert {place: list(one.offsets) for place, one in columns.items()} == {
            A0: [1, 2, 3],
            A1: [5],
            B0: [9, 11, 12],
        }
        assert columns[B0].values == [b"v9", b"v11", b"v12"]


def test_headers_of_a_single_record() -> None:
    """One record with headers in a batch is enough."""
    header = [("h", b"1"), ("h", None)]
    messages = [message("a", 0, 1), message("a", 0, 2, headers=header), message("a", 0, 3)]
    columns = message_columns(messages)[A0]
    assert columns.headers == [(), tuple(header), ()]


def test_timestamps_and_leader_epoch() -> None:
    """A missing timestamp is -1. The epoch to commit is that of the last record."""
    messages = [
        message("a", 0, 1, timestamp=(0, -1), leader_epoch=3),
        message("a", 0, 2, timestamp=(2, 77), leader_epoch=4),
    ]
    columns = message_columns(messages)[A0]
    assert columns.timestamps == [-1, 77]
    assert columns.leader_epoch == 4


def test_an_empty_poll() -> None:
    """It returns an empty dictionary."""
    assert message_columns([]) == {}
