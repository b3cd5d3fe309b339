"""What a group has committed, asked by somebody who need not be in it.

The admin client could be asked as well, and would end the process: where a broker answers that it
is not the group's coordinator, as while a cluster starts or recovers, librdkafka looks for the
group of the client, and an admin client has none (librdkafka issue 5040). A consumer has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.librdkafka_errors import TRANSIENT, UNKNOWN_TOPIC, client_error
from millstream.kafka.rights import Needs, user_of
from millstream.kafka.settings.clients import create_client
from millstream.record import TopicPartition

_WHAT: Final = "Asking for committed offsets"
_PAUSE_MS: Final = 50
#: Of a consumer that only asks: it neither joins the group nor commits, and what is committed
#: within a transaction that is open it does not wait for.
_ONLY_ASKS: Final[Mapping[str, Any]] = {
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
    """The offset that a group has committed of each partition; None where it has none.

    Args:
        settings: of librdkafka: the addresses and the login.
        group_id: the group.
        partitions: those asked about.
        timeout_ms: how long it may take, tries included.
        clock: where the time is read.

    Raises:
        BrokerUnavailableError: no coordinator of the group answered in time.
        AccessDeniedError: the user may not see the group.
        ConfigError: librdkafka refuses a setting.
    """
    return {
        place: None if position is None else position.offset
        for place, position in _positions(settings, group_id, partitions, timeout_ms, clock).items()
    }


def committed_positions(
    settings: Mapping[str, Any],
    group_id: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
    clock: Clock,
) -> dict[TopicPartition, tuple[int, str] | None]:
    """The same with the text that is kept beside each offset; the arguments are those above.

    Only for groups in which librdkafka alone commits: the text must end with a zero byte, which
    other clients do not write, and without which whatever lies behind it in memory would be read.

    Raises:
        BrokerUnavailableError: no coordinator of the group answered in time.
        AccessDeniedError: the user may not see the group.
        ConfigError: librdkafka refuses a setting.
    """
    return {
        place: None if position is None else (position.offset, position.metadata or "")
        for place, position in _positions(settings, group_id, partitions, timeout_ms, clock).items()
    }


def _positions(
    settings: Mapping[str, Any],
    group_id: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
    clock: Clock,
) -> dict[TopicPartition, ClientPartition | None]:
    asked = [ClientPartition(*partition) for partition in partitions]
    if not asked:
        return {}
    deadline = Deadline(clock, timeout_ms)
    consumer = create_client(Consumer, {**settings, **_ONLY_ASKS, "group.id": group_id})
    try:
        while True:
            found, error = _ask(consumer, asked, max(1, deadline.remaining_ms(timeout_ms)))
            if error is None:
                return found
            if error.code() not in TRANSIENT:
                raise client_error(error, _WHAT, needs=Needs(user_of(settings), name=group_id))
            if deadline.passed:
                raise BrokerUnavailableError(
                    f"{_WHAT} of group {group_id!r} failed: {error.str().rstrip('.')}. Check that "
                    f"the brokers at {settings['bootstrap.servers']} run and can be reached."
                )
            clock.sleep_ms(deadline.remaining_ms(_PAUSE_MS))
    finally:
        consumer.close()


def _ask(
    consumer: Consumer, asked: list[ClientPartition], timeout_ms: int
) -> tuple[dict[TopicPartition, ClientPartition | None], KafkaError | None]:
    """The offsets, or what was wrong with the first that could not be told."""
    try:
        answers = consumer.committed(asked, timeout=timeout_ms / 1_000)
    except KafkaException as error:
        return {}, error.args[0]
    found: dict[TopicPartition, ClientPartition | None] = {}
    for answer in answers:
        if answer.error is not None and answer.error.code() not in UNKNOWN_TOPIC:
            return {}, answer.error
        place = TopicPartition(answer.topic, answer.partition)
        found[place] = None if answer.error or answer.offset < 0 else answer
    return found, None
