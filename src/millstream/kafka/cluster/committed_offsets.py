"""Reads the committed offsets of a group from outside the group.

The admin client also has this request, but it could abort the process: if a broker responds that it
is not the group's coordinator, for example while a cluster starts or recovers, librdkafka uses the
group of the client, and an admin client has no group (librdkafka issue 5040). A consumer has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.librdkafka_errors import TRANSIENT, UNKNOWN_TOPIC, client_error
from millstream.kafka.settings.librdkafka_settings import create_client
from millstream.kafka.user_permissions import AccessContext, user_of
from millstream.record import TopicPartition

_ACTION: Final = "Reading committed offsets"
_PAUSE_MS: Final = 50
#: The settings of a consumer that neither joins the group nor commits, and does not wait for the
#: offsets of open transactions.
_READ_ONLY: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "isolation.level": "read_uncommitted",
}


def committed_offsets(
    settings: Mapping[str, Any],
    group_id: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
    clock: Clock,
) -> dict[TopicPartition, int | None]:
    """Return the committed offset of each partition.

    The value is None for partitions without a commit. Raises BrokerUnavailableError if no
    coordinator of the group responds in time, and AccessDeniedError if the user is not allowed to
    read the group.
    """
    return {
        partition: None if position is None else position.offset
        for partition, position in _positions(
            settings, group_id, partitions, timeout_ms, clock
        ).items()
    }


def committed_positions(
    settings: Mapping[str, Any],
    group_id: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
    clock: Clock,
) -> dict[TopicPartition, tuple[int, str] | None]:
    """Return committed offsets with metadata, like `committed_offsets`.

    Only for groups in which librdkafka makes all commits: the metadata must end with a zero byte,
    which other clients do not write. Otherwise, librdkafka reads the memory after the metadata.
    """
    return {
        partition: None if position is None else (position.offset, position.metadata or "")
        for partition, position in _positions(
            settings, group_id, partitions, timeout_ms, clock
        ).items()
    }


def _positions(
    settings: Mapping[str, Any],
    group_id: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
    clock: Clock,
) -> dict[TopicPartition, ClientPartition | None]:
    requested = [ClientPartition(*partition) for partition in partitions]
    if not requested:
        return {}
    deadline = Deadline(clock, timeout_ms)
    consumer = create_client(Consumer, {**settings, **_READ_ONLY, "group.id": group_id})
    try:
        while True:
            found, error = _fetch_once(
                consumer, requested, max(1, deadline.remaining_ms(timeout_ms))
            )
            if error is None:
                return found
            if error.code() not in TRANSIENT:
                raise client_error(
                    error, _ACTION, access=AccessContext(user_of(settings), name=group_id)
                )
            if deadline.passed:
                raise BrokerUnavailableError(
                    f"{_ACTION} of group {group_id!r} failed: {error.str().rstrip('.')}. Check "
                    f"that the brokers at {settings['bootstrap.servers']} are reachable."
                )
            clock.sleep_ms(deadline.remaining_ms(_PAUSE_MS))
    finally:
        consumer.close()


def _fetch_once(
    consumer: Consumer, requested: list[ClientPartition], timeout_ms: int
) -> tuple[dict[TopicPartition, ClientPartition | None], KafkaError | None]:
    """Fetch the offsets, or return the first error."""
    try:
        results = consumer.committed(requested, timeout=timeout_ms / 1_000)
    except KafkaException as error:
        return {}, error.args[0]
    found: dict[TopicPartition, ClientPartition | None] = {}
    for result in results:
        if result.error is not None and result.error.code() not in UNKNOWN_TOPIC:
            return {}, result.error
        partition = TopicPartition(result.topic, result.partition)
        found[partition] = None if result.error or result.offset < 0 else result
    return found, None
