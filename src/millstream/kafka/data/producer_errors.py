"""What a producer raises for the errors that librdkafka reports to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from millstream.errors import (
    AccessDeniedError,
    BrokerUnavailableError,
    ConfigError,
    ProductionError,
    RebalanceInProgressError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.librdkafka_errors import (
    ACCESS,
    TRANSIENT,
    client_error,
    is_access_error,
)
from millstream.kafka.rights import Needs, Right, missing_right, told
from millstream.record import TaskId


class Changelog(NamedTuple):
    """Whose changes a topic holds: partition by partition those of one store in one task."""

    store: str
    subtopology: int


#: What confluent-kafka raises. Of a fatal error it tells between two callbacks, the second of which
#: then runs into it, so that Python makes a SystemError of it, or forgets it.
RAISED: Final = (KafkaException, SystemError)
#: How Python says that it was forgotten.
_FORGOTTEN: Final = "without setting an exception"

#: Another producer took over this one's place, or its group membership is over.
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)

#: The broker lost track of this producer's records, or one of them is missing. A transaction has to
#: be aborted then; else, follows Kafka Streams: the task begins again from its last commit.
_OUT_OF_SEQUENCE: Final = frozenset(
    {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID}
)

#: Wrong for every record, so that nobody is asked what to do about a single one: follows Kafka
#: Streams.
UNASKED: Final = ACCESS | {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNKNOWN,
    KafkaError._FATAL,
    KafkaError._STATE,
}

#: Trying again may help.
_RETRIABLE: Final = TRANSIENT | {
    KafkaError._MSG_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}

#: librdkafka reports the same for all that a broker checks in a record.
_INVALID: Final = (
    "A record needs a key if its topic is compacted, and a timestamp no further in the past or in "
    "the future than message.timestamp.before.max.ms and message.timestamp.after.max.ms of the "
    "topic allow. Correct the record, leave it out, or change the settings of the topic."
)

_ADVICE: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "It is larger than the producer's max.request.size or the topic's max.message.bytes "
        "allow: raise those. If no record is, the batch it went in was: lower the producer's "
        "batch.size."
    ),
    KafkaError.INVALID_RECORD: _INVALID,
    KafkaError.INVALID_TIMESTAMP: _INVALID,
    KafkaError._INVALID_DIFFERENT_RECORD: _INVALID,
    KafkaError._MSG_TIMED_OUT: (
        "No broker took it within delivery.timeout.ms. Check that the leaders of the topic can be "
        "reached, and that min.insync.replicas are there."
    ),
    KafkaError._UNKNOWN_TOPIC: "The topic does not exist. Create it.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "The topic or partition does not exist. Create it.",
    KafkaError._UNKNOWN_PARTITION: "The topic has no such partition, or was deleted.",
}


def reported_error(raised: BaseException) -> KafkaError:
    """What librdkafka reported by means of one of `RAISED`.

    Only of a fatal error Python may forget what it was; librdkafka's log has it.
    """
    told: BaseException | None = raised
    while isinstance(told, SystemError) and told.__cause__ is not None:
        told = told.__cause__
    if isinstance(told, SystemError) and _FORGOTTEN in str(told):
        return KafkaError(KafkaError._FATAL, "a fatal error, which the log tells", fatal=True)
    if not isinstance(told, KafkaException):
        raise raised
    error: KafkaError = told.args[0]
    return error


def delivery_error(
    error: KafkaError,
    topic: str | None,
    partition: int | None,
    changelog: Changelog | None = None,
    *,
    begins_anew: bool = False,
    user: str = "",
) -> StreamsError:
    """The error to raise for a record that was not delivered.

    Args:
        error: what librdkafka reported.
        topic: where it was to go.
        partition: where it was to go, if that was said.
        changelog: whose the topic is, if it is a changelog.
        begins_anew: whether the work since the last commit is to be done again when nobody took it
            in time.
        user: who writes, if that is known.
    """
    reason = error.str().rstrip(".")
    if error.code() in _FENCED or error.code() in _OUT_OF_SEQUENCE:
        return TaskMigratedError(
            "A record was not written, because another producer has taken over, or the broker lost "
            f"track of this one: {reason}.",
            topic=topic,
            partition=partition,
        )
    if begins_anew and error.code() in _RETRIABLE:
        # Follows Kafka Streams: a timeout costs the work since the last commit, not the thread.
        return TaskMigratedError(
            f"A record was not written in time: {reason}.", topic=topic, partition=partition
        )
    right = missing_right(error.code(), topic, Needs(user, "Write"))
    advice = told([right], user) if right is not None else _ADVICE.get(error.code(), "")
    what, task_id = "A record was not written", None
    if changelog is not None:
        what = f"A change of store '{changelog.store}' was not written to its changelog"
        if partition is not None:
            task_id = TaskId(changelog.subtopology, partition)
    failure = ProductionError(
        f"{what}: {reason}. {advice}".rstrip(), topic=topic, partition=partition, task_id=task_id
    )
    failure.retriable = error.code() in _RETRIABLE
    return failure


def transaction_error(
    error: KafkaError, what: str, because: str, needs: Needs, topics: Collection[str]
) -> StreamsError:
    """The error to raise for a step of a transaction that failed.

    Args:
        error: what librdkafka reported.
        what: the step, as the start of a sentence: "Committing the transaction".
        because: what the connections have met with, as " (...)", or empty.
        needs: who writes, and under which transactional id.
        topics: what the transaction writes to.
    """
    reason = error.str().rstrip(".")
    if is_access_error(error):
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and topics:
            return _refused_topic(what, needs, sorted(topics))
        return client_error(error, what, needs=needs)
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            f"{what} failed, because the broker does not accept the producer's "
            "transaction.timeout.ms: it is above the broker's transaction.max.timeout.ms (15 "
            "minutes by default). Lower transaction.timeout.ms, or raise that setting of the "
            "brokers."
        )
    if error.code() in _FENCED or error.fatal():
        return migrated_error(error, what)
    if error.code() == KafkaError.REBALANCE_IN_PROGRESS:
        return RebalanceInProgressError(f"{what} failed, because the group is rebalancing.")
    if error.txn_requires_abort():
        return ProductionError(f"{what} failed, so that it has to be aborted: {reason}.")
    if error.retriable() or error.code() in TRANSIENT:
        return BrokerUnavailableError(
            f"{what} failed: {reason}{because}. Check that the brokers can be reached."
        )
    return client_error(error, what)


def _refused_topic(what: str, needs: Needs, topics: list[str]) -> AccessDeniedError:
    # librdkafka tells only its log which one it is.
    one_of = "" if len(topics) == 1 else "Of the topics that it wrote to one is refused, or more. "
    missing = told([Right("Write", "topic", topic) for topic in topics], needs.user)
    return AccessDeniedError(
        f"{what} was refused by the broker: {one_of}{missing}",
        topic=topics[0] if len(topics) == 1 else None,
    )


def migrated_error(error: KafkaError, what: str) -> TaskMigratedError:
    """The error to raise when this producer has been replaced; `what` as in `transaction_error`."""
    return TaskMigratedError(
        f"{what} failed, because another producer or member has taken over, or the broker ended "
        f"the transaction after transaction.timeout.ms: {error.str().rstrip('.')}."
    )
