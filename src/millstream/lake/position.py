"""Where in a changelog a snapshot is taken: the offset behind the last record of each partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from millstream.config import StreamsConfig
from millstream.errors import ConfigError, UnknownTopicError
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.data.consumer import RecordConsumer
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.lake.log_reader import open_consumer
from millstream.lake.store_table import StoreTable
from millstream.record import TopicPartition

#: Offsets by partition.
Offsets = Mapping[int, int]

#: The place of the position in the metadata of a DataFrame's first column.
METADATA: Final = "millstream.position"


def ends_of(config: StreamsConfig, table: StoreTable) -> dict[int, int]:
    """The offset behind the last committed record of each partition, as it is now.

    Raises:
        UnknownTopicError: there is no such topic.
        BrokerUnavailableError: no broker answers.
        AccessDeniedError: the user may not read it.
    """
    return _offsets_of(config, table, RecordConsumer.end_offsets)


def beginnings_of(config: StreamsConfig, table: StoreTable) -> dict[int, int]:
    """The offset of the first record that each partition still has; raises as `ends_of`."""
    return _offsets_of(config, table, RecordConsumer.beginning_offsets)


def _offsets_of(
    config: StreamsConfig,
    table: StoreTable,
    ask: Callable[[RecordConsumer, Iterable[TopicPartition]], Mapping[TopicPartition, int]],
) -> dict[int, int]:
    places = _partitions_of(config, table)
    consumer = open_consumer(config)
    try:
        found = ask(consumer, places)
    finally:
        consumer.close()
    return {place.partition: offset for place, offset in found.items()}


def as_json(topic: str, offsets: Offsets) -> str:
    """A position as text: offsets by partition by topic, as Spark's Kafka source has it.

    Example:
        >>> as_json("shop-counts-changelog", {0: 41, 1: 7})
        '{"shop-counts-changelog":{"0":41,"1":7}}'
    """
    partitions = {str(partition): offsets[partition] for partition in sorted(offsets)}
    return json.dumps({topic: partitions}, separators=(",", ":"))


def from_json(text: str, topic: str, what: str) -> dict[int, int]:
    """The offsets of a position that was given as text.

    Args:
        text: as `as_json` gives it.
        topic: of which they must be.
        what: to call it in errors.

    Raises:
        ConfigError: it is no such text, or of another topic.
    """
    try:
        told = json.loads(text)
        offsets = {int(partition): int(told[topic][partition]) for partition in told[topic]}
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{what} is {text!r}, and must be offsets by partition of the topic {topic}, such as "
            f"{as_json(topic, {0: 41, 1: 7})}. Give what lake.position_of(df) says of a snapshot "
            "of this store."
        ) from error
    return offsets


def checked_position(text: str, ends: Offsets, topic: str) -> dict[int, int]:
    """A position at which a snapshot shall be taken once more.

    Raises:
        ConfigError: it is no position of this topic as it is now.
    """
    offsets = from_json(text, topic, "The option position")
    if offsets.keys() != ends.keys():
        raise ConfigError(
            f"The option position has {len(offsets)} partitions of {topic}, which has {len(ends)}."
        )
    beyond = [partition for partition, offset in offsets.items() if offset > ends[partition]]
    if beyond:
        raise ConfigError(
            f"The option position says offset {offsets[beyond[0]]} of {topic}-{beyond[0]}, which "
            f"ends at {ends[beyond[0]]}. The topic was created anew since, or belongs to another "
            "cluster."
        )
    return offsets


def _partitions_of(config: StreamsConfig, table: StoreTable) -> list[TopicPartition]:
    settings: dict[str, Any] = librdkafka_settings(
        config, "admin", f"{config.application_id}-dataframe"
    )
    admin = ClusterAdmin(settings)
    try:
        count = admin.partition_counts([table.topic]).get(table.topic)
    finally:
        admin.close()
    if count is None:
        raise UnknownTopicError(
            f"Store {table.store} is read from a topic that does not exist. Check application_id "
            "and the store's name, and that logging is on for it; a changelog is created when the "
            "application starts for the first time.",
            topic=table.topic,
        )
    return [TopicPartition(table.topic, partition) for partition in range(count)]
