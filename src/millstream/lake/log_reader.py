"""Reads a stretch of one partition of a topic, from an offset up to a fixed end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.errors import BrokerUnavailableError
from millstream.kafka.data.consumer import OFFSET_BEGINNING, RecordConsumer
from millstream.kafka.data.record_columns import RecordColumns
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TopicPartition

_MOST_RECORDS: Final = 5_000
_POLL_MS: Final = 500
#: After so long without a record or an end the brokers have gone.
_SILENCE_MS: Final = 120_000


def open_consumer(config: StreamsConfig) -> RecordConsumer:
    """A consumer for tables, which sees no more than what is committed."""
    settings = librdkafka_settings(config, "restore_consumer", f"{config.application_id}-dataframe")
    return RecordConsumer(
        {**settings, "isolation.level": "read_committed"}, speedups=config.speedups
    )


def read_records(
    config: StreamsConfig, partition: TopicPartition, begin: int | None, end: int
) -> Iterator[RecordColumns]:
    """The records of a partition, some thousand at a time, in the order of the log.

    Args:
        config: how the cluster is reached.
        partition: of which topic.
        begin: the first offset; None for the first that there is.
        end: the offset behind the last record.

    Raises:
        OffsetOutOfRangeError: the log has no such offset any more.
        BrokerUnavailableError: no broker gives the records.
    """
    if begin is not None and begin >= end:
        return
    clock = SystemClock()
    consumer = open_consumer(config)
    try:
        if begin is None and consumer.beginning_offsets([partition])[partition] >= end:
            return
        consumer.assign({partition: OFFSET_BEGINNING if begin is None else begin})
        heard_ms = clock.monotonic_ms()
        while True:
            columns = consumer.poll_columns(_MOST_RECORDS, _POLL_MS).get(partition)
            if columns is not None:
                heard_ms = clock.monotonic_ms()
                last = columns.offsets[-1]
                if last < end:
                    yield columns
                elif columns.offsets[0] < end:
                    yield _before(columns, end)
                if last >= end - 1:
                    return
            elif (consumer.position(partition) or 0) >= end:
                # Only markers of transactions, or nothing that is left, lay before the end.
                return
            elif clock.monotonic_ms() - heard_ms > _SILENCE_MS:
                raise BrokerUnavailableError(
                    f"Nothing came of {partition} for {_SILENCE_MS // 1_000} seconds, and it was "
                    f"to be read up to offset {end}. Check that the brokers run, and that the "
                    "topic was not created anew since the position was taken.",
                    topic=partition.topic,
                    partition=partition.partition,
                )
    finally:
        consumer.close()


def _before(columns: RecordColumns, end: int) -> RecordColumns:
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
