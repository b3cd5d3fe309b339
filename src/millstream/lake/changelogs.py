"""Reads changelogs, and the positions of snapshots.

A position consists of the end offset of each partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Final

from millstream.clock import SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import BrokerUnavailableError, ConfigError, UnknownTopicError
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING, RecordConsumer
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.lake.store_table import StoreTable
from millstream.record import TopicPartition

#: Offsets by partition.
Offsets = Mapping[int, int]

#: The key of the position in the metadata of a DataFrame's first column.
METADATA: Final = "millstream.position"
_MAX_POLL_RECORDS: Final = 5_000
_POLL_MS: Final = 500
#: The time without progress after which the brokers are considered unavailable.
_PROGRESS_TIMEOUT_MS: Final = 120_000


def open_consumer(config: StreamsConfig) -> RecordConsumer:
    settings = librdkafka_settings(config, "restore_consumer", f"{config.application_id}-dataframe")
    return RecordConsumer(
        {**settings, "isolation.level": "read_committed"}, speedups=config.speedups
    )


def read_records(
    config: StreamsConfig, partition: TopicPartition, begin: int | None, end: int
) -> Iterator[RecordColumns]:
    """Yield the records of an offset range in log order, a few thousand at a time.

    If `begin` is None, the range starts at the beginning of the log.

    Raises:
        OffsetOutOfRangeError: the log no longer contains the first offset.
        BrokerUnavailableError: no broker returns the records.
    """
    if begin is not None and begin >= end:
        return
    clock = SystemClock()
    consumer = open_consumer(config)
    try:
        if begin is None and consumer.beginning_offsets([partition])[partition] >= end:
            return
        consumer.assign({partition: OFFSET_BEGINNING if begin is None else begin})
        progress_ms = clock.monotonic_ms()
        while True:
            columns = consumer.poll_columns(_MAX_POLL_RECORDS, _POLL_MS).get(partition)
            if columns is not None:
                progress_ms = clock.monotonic_ms()
                last = columns.offsets[-1]
                if last < end:
                    yield columns
                elif columns.offsets[0] < end:
                    yield _truncate(columns, end)
                if last >= end - 1:
                    return
            elif (consumer.position(partition) or 0) >= end:
                # The end of the range contains only transaction markers or deleted records.
                return
            elif clock.monotonic_ms() - progress_ms > _PROGRESS_TIMEOUT_MS:
                raise BrokerUnavailableError(
                    f"No records of {partition} arrived for {_PROGRESS_TIMEOUT_MS // 1_000} "
                    f"seconds while reading up to offset {end}. Check that the brokers are running "
                    "and that the topic has not been recreated since the position was taken.",
                    topic=partition.topic,
                    partition=partition.partition,
                )
    finally:
        consumer.close()


def _truncate(columns: RecordColumns, end: int) -> RecordColumns:
    count = sum(1 for offset in columns.offsets if offset < end)
    headers = columns.headers
    return RecordColumns(
        columns.keys[:count],
        columns.values[:count],
        columns.timestamps[:count],
        columns.offsets[:count],
        None if headers is None else headers[:count],
        columns.leader_epoch,
    )


def ends_of(config: StreamsConfig, table: StoreTable) -> dict[int, int]:
    """Return the current end offset of each partition, without uncommitted records.

    Raises an `UnknownTopicError`, `BrokerUnavailableError` or `AccessDeniedError`.
    """
    return _offsets_of(config, table, RecordConsumer.end_offsets)


def beginnings_of(config: StreamsConfig, table: StoreTable) -> dict[int, int]:
    """Return the beginning offset of each partition. Raises the errors of `ends_of`."""
    return _offsets_of(config, table, RecordConsumer.beginning_offsets)


def _offsets_of(
    config: StreamsConfig,
    table: StoreTable,
    fetch: Callable[[RecordConsumer, Iterable[TopicPartition]], Mapping[TopicPartition, int]],
) -> dict[int, int]:
    topic_partitions = _partitions_of(config, table)
    with closing(open_consumer(config)) as consumer:
        found = fetch(consumer, topic_partitions)
    return {tp.partition: offset for tp, offset in found.items()}


def as_json(topic: str, offsets: Offsets) -> str:
    """Format a position as JSON.

    The JSON contains offsets by topic and partition, as in Spark's Kafka source.
    """
    partitions = {str(partition): offsets[partition] for partition in sorted(offsets)}
    return json.dumps({topic: partitions}, separators=(",", ":"))


def from_json(text: str, topic: str, what: str) -> dict[int, int]:
    """Parse a position.

    Raises a `ConfigError`, in which the position is called `what`.
    """
    try:
        position = json.loads(text)
        offsets = {int(partition): int(position[topic][partition]) for partition in position[topic]}
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{what} is {text!r}, but must contain offsets by partition of the topic {topic}, such "
            f"as {as_json(topic, {0: 41, 1: 7})}. Pass the result of lake.position_of(df) for a "
            "snapshot of this store."
        ) from error
    return offsets


def parse_position(text: str, ends: Offsets, topic: str) -> dict[int, int]:
    """Parse an earlier position.

    Raises a `ConfigError` if the position does not match the current topic.
    """
    offsets = from_json(text, topic, "The option position")
    if offsets.keys() != ends.keys():
        raise ConfigError(
            f"The option position contains {len(offsets)} partitions of {topic}, which has "
            f"{len(ends)}."
        )
    beyond = [partition for partition, offset in offsets.items() if offset > ends[partition]]
    if beyond:
        raise ConfigError(
            f"The option position contains offset {offsets[beyond[0]]} of {topic}-{beyond[0]}, "
            f"which ends at {ends[beyond[0]]}. The topic has been recreated since, or the position "
            "is from another cluster."
        )
    return offsets


def _partitions_of(config: StreamsConfig, table: StoreTable) -> list[TopicPartition]:
    client_id = f"{config.application_id}-dataframe"
    admin = ClusterAdmin(librdkafka_settings(config, "admin", client_id))
    with closing(admin):
        count = admin.partition_counts([table.topic]).get(table.topic)
    if count is None:
        raise UnknownTopicError(
            f"The topic of store {table.store} does not exist. Check application_id, the store's "
            "name, and that logging is enabled for the store. The changelog is created when the "
            "application starts for the first time.",
            topic=table.topic,
        )
    return [TopicPartition(table.topic, partition) for partition in range(count)]
