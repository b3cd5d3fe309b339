"""Translation of librdkafka's errors to the errors that a producer raises."""

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
from millstream.kafka.librdkafka_errors import ACCESS, TRANSIENT, client_error, is_access_error
from millstream.kafka.user_permissions import (
    AccessContext,
    Permission,
    missing_permission,
    permission_advice,
)
from millstream.record import TaskId


class Changelog(NamedTuple):
    """The store and sub-topology of a changelog topic.

    Each partition of the topic belongs to one task.
    """

    store: str
    subtopology: int


#: The exceptions of confluent-kafka. If confluent-kafka raises a fatal error between two callbacks,
#: the second callback fails, and Python turns the error into a SystemError or loses it.
RAISED: Final = (KafkaException, SystemError)
#: Python's message for a lost exception.
_LOST_EXCEPTION: Final = "without setting an exception"

#: Errors that mean that another producer took over, or that the group membership has ended.
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

#: Errors that mean that the broker lost track of this producer's records, or that a record is
#: missing. A transaction must then be aborted. Without transactions, the task restarts from its
#: last commit, as in Kafka Streams.
_OUT_OF_SEQUENCE: Final = frozenset(
    {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID}
)

#: Errors that concern all records. As in Kafka Streams, no handler is called for them.
NOT_HANDLED: Final = ACCESS | {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNKNOWN,
    KafkaError._FATAL,
    KafkaError._STATE,
}

#: Errors for which a retry may help.
_RETRIABLE: Final = TRANSIENT | {
    KafkaError._MSG_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}

#: The advice for an invalid record. librdkafka does not always report which of the broker's checks
#: failed.
_INVALID: Final = (
    "A record needs a key if its topic is compacted, and a timestamp within "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic. Correct the "
    "record, skip it, or change the settings of the topic."
)

_ADVICE: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "The record is larger than the producer's max.request.size or the topic's "
        "max.message.bytes: raise both. If no record is larger, the batch was too large: lower "
        "the producer's batch.size."
    ),
    KafkaError.INVALID_RECORD: _INVALID,
    KafkaError.INVALID_TIMESTAMP: _INVALID,
    KafkaError._INVALID_DIFFERENT_RECORD: _INVALID,
    KafkaError._MSG_TIMED_OUT: (
        "No broker acknowledged the record within delivery.timeout.ms. Check that the leaders of "
        "the topic are reachable, and that min.insync.replicas are available."
    ),
    KafkaError._UNKNOWN_TOPIC: "The topic does not exist. Create it.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "The topic or partition does not exist. Create it.",
    KafkaError._UNKNOWN_PARTITION: "The topic has no such partition, or was deleted.",
}


def reported_error(raised: BaseException) -> KafkaError:
    """Return librdkafka's error from one of the `RAISED` exceptions.

    Python may lose the details of a fatal error; librdkafka's log contains them.
    """
    reported: BaseException | None = raised
    while isinstance(reported, SystemError) and reported.__cause__ is not None:
        reported = reported.__cause__
    if isinstance(reported, SystemError) and _LOST_EXCEPTION in str(reported):
        return KafkaError(KafkaError._FATAL, "a fatal error; see the log", fatal=True)
    if not isinstance(reported, KafkaException):
        raise raised
    error: KafkaError = reported.args[0]
    return error


def delivery_error(
    error: KafkaError,
    topic: str | None,
    partition: int | None,
    changelog: Changelog | None = None,
    *,
    reprocess_on_timeout: bool = False,
    user: str = "",
) -> StreamsError:
    """Return the error for a record that was not delivered.

    With `reprocess_on_timeout`, a timeout is a TaskMigratedError, so the work since the last commit
    is repeated.
    """
    reason = error.str().rstrip(".")
    if error.code() in _FENCED or error.code() in _OUT_OF_SEQUENCE:
        return TaskMigratedError(
            "A record was not written, because another producer has taken over, or the broker lost "
            f"track of this producer's records: {reason}.",
            topic=topic,
            partition=partition,
        )
    if reprocess_on_timeout and error.code() in _RETRIABLE:
        # As in Kafka Streams, a timeout repeats the work since the last commit and does not end
        # the thread.
        return TaskMigratedError(
            f"A record was not written in time: {reason}.", topic=topic, partition=partition
        )
    permission = missing_permission(error.code(), topic, AccessContext(user, "Write"))
    advice = (
        permission_advice([permission], user)
        if permission is not None
        else _ADVICE.get(error.code(), "")
    )
    action, task_id = "A record was not written", None
    if changelog is not None:
        action = f"A change of store '{changelog.store}' was not written to its changelog"
        if partition is not None:
            task_id = TaskId(changelog.subtopology, partition)
    failure = ProductionError(
        f"{action}: {reason}. {advice}".rstrip(), topic=topic, partition=partition, task_id=task_id
    )
    failure.retriable = error.code() in _RETRIABLE
    return failure


def transaction_error(
    error: KafkaError, action: str, hint: str, access: AccessContext, topics: Collection[str]
) -> StreamsError:
    """Return the error for a failed step of a transaction.

    `action` starts a sentence: "Committing the transaction". `hint` is the latest connection error
    as " (...)", or empty.
    """
    reason = error.str().rstrip(".")
    if is_access_error(error):
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and topics:
            return _rejected_topic(action, access, sorted(topics))
        return client_error(error, action, access=access)
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            f"{action} failed, because the producer's transaction.timeout.ms is above the brokers' "
            "transaction.max.timeout.ms (15 minutes by default). Lower the former, or raise the "
            "latter."
        )
    if error.code() in _FENCED or error.fatal():
        return migrated_error(error, action)
    if error.code() == KafkaError.REBALANCE_IN_PROGRESS:
        return RebalanceInProgressError(f"{action} failed, because the group is rebalancing.")
    if error.txn_requires_abort():
        return ProductionError(f"{action} failed, so the transaction must be aborted: {reason}.")
    if error.retriable() or error.code() in TRANSIENT:
        return BrokerUnavailableError(
            f"{action} failed: {reason}{hint}. Check that the brokers are reachable."
        )
    return client_error(error, action)


def _rejected_topic(action: str, access: AccessContext, topics: list[str]) -> AccessDeniedError:
    # librdkafka does not return the name of the topic, but only logs it.
    one_of = "" if len(topics) == 1 else "One or more of its topics were rejected. "
    missing = permission_advice(
        [Permission("Write", "topic", topic) for topic in topics], access.user
    )
    return AccessDeniedError(
        f"{action} was rejected by the broker: {one_of}{missing}",
        topic=topics[0] if len(topics) == 1 else None,
    )


def migrated_error(error: KafkaError, action: str) -> TaskMigratedError:
    """Return the error for a fenced producer; `action` is as in `transaction_error`."""
    return TaskMigratedError(
        f"{action} failed, because another producer or member has taken over, or the broker ended "
        f"the transaction after transaction.timeout.ms: {error.str().rstrip('.')}."
    )
