"""Fetched records as parallel lists per partition, the engine's format.

Comments contain the measured cost of each step in nanoseconds per record, with records of 75 bytes
in batches of 5,000.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from confluent_kafka import Message

from millstream.record import Header, TopicPartition

_key = Message.key
_value = Message.value
_timestamp = Message.timestamp
_offset = Message.offset
_partition = Message.partition
_topic = Message.topic
_headers = Message.headers


class RecordColumns(NamedTuple):
    """Records of one partition in offset order, as sequences of equal length."""

    keys: list[bytes | None]
    values: list[bytes | None]
    #: Milliseconds since the epoch; -1 if the log has none.
    timestamps: list[int]
    #: A `range` if no offset was skipped, else a list.
    offsets: Sequence[int]
    #: The headers of each record, which may be empty; None if no record has headers.
    headers: list[Sequence[Header]] | None
    #: The leader epoch of the last record, for the commit; None if unknown.
    leader_epoch: int | None


def message_columns(
    messages: Sequence[Message], assigned: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, RecordColumns]:
    """Group records by partition, in the order of their first records, as columns.

    Takes 145 ns per record for one partition, 170 ns for several partitions of one topic, and 210
    ns for several topics. `assigned` are the only possible partitions, if known, which can save
    reading the topic or partition of each record.
    """
    if not messages:
        return {}
    return {
        partition: _columns(records)
        for partition, records in _by_partition(messages, assigned).items()
    }


def append_columns(columns: RecordColumns, more: RecordColumns) -> RecordColumns:
    """Append columns of the same partition. Modifies the lists of `columns`."""
    columns.keys.extend(more.keys)
    columns.values.extend(more.values)
    columns.timestamps.extend(more.timestamps)
    return columns._replace(
        offsets=_appended_offsets(columns.offsets, more.offsets),
        headers=_appended_headers(columns, more),
        leader_epoch=more.leader_epoch,
    )


def _appended_offsets(offsets: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    if isinstance(offsets, range) and isinstance(more, range) and offsets.stop == more.start:
        return range(offsets.start, more.stop)
    return [*offsets, *more]


def _appended_headers(columns: RecordColumns, more: RecordColumns) -> list[Sequence[Header]] | None:
    if columns.headers is None and more.headers is None:
        return None
    # The first columns already contain the values of both.
    before: list[Sequence[Header]] = [()] * (len(columns.values) - len(more.values))
    after: list[Sequence[Header]] = [()] * len(more.values)
    return [*(columns.headers or before), *(more.headers or after)]


def _by_partition(
    messages: Sequence[Message], assigned: Collection[TopicPartition] | None
) -> Mapping[TopicPartition, Sequence[Message]]:
    if assigned is not None and len(assigned) == 1:
        return {next(iter(assigned)): messages}
    # librdkafka queues the records that one fetch returned for a partition together, so runs are
    # long and slicing is fast.
    runs: dict[TopicPartition, list[Message]] = {}
    one_topic = assigned is not None and len({partition.topic for partition in assigned}) == 1
    start = 0
    for number, group in groupby(map(_partition, messages)):  # 30 ns
        end = start + len(list(group))
        if one_topic:
            _append(runs, messages, start, end, number)
        else:
            for _, same_topic in groupby(map(_topic, messages[start:end])):  # 44 ns
                topic_end = start + len(list(same_topic))
                _append(runs, messages, start, topic_end, number)
                start = topic_end
        start = end
    return runs


def _append(
    runs: dict[TopicPartition, list[Message]],
    messages: Sequence[Message],
    start: int,
    end: int,
    number: int | None,
) -> None:
    topic = messages[start].topic()
    # A fetched record always has a topic and a partition.
    assert topic is not None
    assert number is not None
    partition = TopicPartition(topic, number)
    run = list(messages[start:end])
    if partition in runs:
        runs[partition] += run
    else:
        runs[partition] = run


def _columns(records: Sequence[Message]) -> RecordColumns:
    last = records[-1]
    return RecordColumns(
        # Mapping the unbound method is the fastest loop: 30 ns, 33 ns in a comprehension.
        keys=list(map(_key, records)),  # 30 ns
        values=list(map(_value, records)),  # 33 ns
        timestamps=[timestamp for _, timestamp in map(_timestamp, records)],  # 68 ns
        offsets=_offsets(records),
        headers=_header_lists(records),
        leader_epoch=last.leader_epoch(),
    )


def _offsets(records: Sequence[Message]) -> Sequence[int]:
    first, last = records[0].offset(), records[-1].offset()
    # A fetched record always has an offset.
    assert first is not None
    assert last is not None
    if last - first + 1 == len(records):
        # Offsets increase, so there are no gaps if the counts are equal. Saves 31 ns.
        return range(first, last + 1)
    return [offset for offset in map(_offset, records) if offset is not None]


def _header_lists(records: Sequence[Message]) -> list[Sequence[Header]] | None:
    # None and an empty list are both false. The check takes 27 ns.
    if not any(map(_headers, records)):
        return None
    # Convert to tuples, which need no check when records are created from them.
    lists: list[Any] = [record.headers() for record in records]
    return [tuple(each or ()) for each in lists]
