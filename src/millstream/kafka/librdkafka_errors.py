"""Translation of librdkafka's errors to Millstream's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from millstream.errors import (
    AccessDeniedError,
    BrokerUnavailableError,
    StreamsError,
    TopologyError,
    UnknownTopicError,
)
from millstream.kafka.settings.tokens import LibrdkafkaTokens
from millstream.kafka.user_permissions import (
    NO_ACCESS_CONTEXT,
    AccessContext,
    missing_permission,
    permission_advice,
)

#: Errors after which librdkafka retries; they are only logged.
TRANSIENT: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        # A partition without a leader; nonexistent partitions are detected earlier.
        KafkaError._NOENT,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)

#: Errors that mean that the topic or partition does not exist, or has an illegal name.
UNKNOWN_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.TOPIC_EXCEPTION,
    }
)

_RETRIED_CREATION: Final = TRANSIENT | {
    KafkaError.NOT_CONTROLLER,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    # While a cluster starts, too few brokers may have registered.
    KafkaError.INVALID_REPLICATION_FACTOR,
}

#: Errors that mean that the login was rejected, or that the user lacks a permission.
ACCESS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

#: A broker's response to a login within a second of another login on the same connection, which
#: happens when a token is about to expire. librdkafka reconnects.
_LOGIN_TOO_SOON: Final = "Request not valid in current SASL state"

#: The TLS alerts with which the broker rejects or requires the client's certificate (RFC 8446,
#: 6.2).
_CERTIFICATE_ALERT: Final = re.compile(r"SSL alert number (4[2-68]|116)\b")


def client_error(
    error: KafkaError,
    action: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    access: AccessContext = NO_ACCESS_CONTEXT,
) -> StreamsError:
    """Convert an error of librdkafka to the error to raise.

    `action` is the failed action, as the start of a sentence: "Reading records". `access` is the
    user and the operation, for errors about missing permissions.
    """
    code, reason = error.code(), error.str().rstrip(".")
    if code in UNKNOWN_TOPIC:
        return UnknownTopicError(
            f"{action} failed, because the topic or partition does not exist: {reason}. "
            "Create it, or correct its name.",
            topic=topic,
            partition=partition,
        )
    permission = missing_permission(code, topic, access)
    if permission is not None:
        return AccessDeniedError(
            f"{action} was rejected by the broker: {permission_advice([permission], access.user)}",
            topic=topic,
            partition=partition,
        )
    if is_access_error(error):
        return AccessDeniedError(f"{action} {_rejection(error)}.", topic=topic, partition=partition)
    if code in TRANSIENT:
        return BrokerUnavailableError(
            f"{action} failed: {reason}. Check that the brokers are running and reachable.",
            topic=topic,
            partition=partition,
        )
    return StreamsError(
        f"{action} failed: {reason} ({error.name()}).",
        topic=topic,
        partition=partition,
        offset=offset,
    )


def creation_problem(topic: str, error: KafkaError, user: str = "") -> str:
    """Return the reason why a topic does not exist yet, if waiting may help.

    Raises TopologyError if the broker rejects the topic, and AccessDeniedError if the user is not
    allowed to create topics.
    """
    code, reason = error.code(), error.str().rstrip(".")
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        # The topic is either complete or still being deleted; its visibility shows which.
        return f"Topic {topic} is being deleted"
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        return f"{reason}. Start more brokers, or lower replication_factor"
    if code in _RETRIED_CREATION:
        return f"Topic {topic}: {reason}"
    if is_access_error(error):
        raise client_error(
            error, "Creating a topic", topic=topic, access=AccessContext(user, "Create")
        )
    raise TopologyError(f"The broker rejects the topic: {reason}.", topic=topic)


def login_error(error: KafkaError, settings: Mapping[str, Any]) -> StreamsError:
    """Convert an `is_access_error` of a connection to the error to raise."""
    tokens = settings.get("oauth_cb")
    why = tokens.supply.failure if isinstance(tokens, LibrdkafkaTokens) else None
    # librdkafka does not report the exception of its callback.
    return why or AccessDeniedError(
        f"Connecting to {settings['bootstrap.servers']} {_rejection(error)}."
    )


def is_access_error(error: KafkaError) -> bool:
    """Whether the client, the broker or an operation was rejected.

    If so, retries do not help.
    """
    if _LOGIN_TOO_SOON in error.str():
        return False
    return error.code() in ACCESS or _is_untrusted(error) or _is_certificate_rejected(error)


def _is_untrusted(error: KafkaError) -> bool:
    # Other handshake failures may be temporary, for example if the broker stops meanwhile.
    return error.code() == KafkaError._SSL and "certificate verify failed" in error.str()


def _is_certificate_rejected(error: KafkaError) -> bool:
    return _CERTIFICATE_ALERT.search(error.str()) is not None


def _rejection(error: KafkaError) -> str:
    reason = error.str().rstrip(".")
    if _is_untrusted(error):
        return (
            f"failed, because the broker's certificate is not trusted: {reason}. Set "
            "ssl.truststore.location (or ssl.ca.location) to a PEM file with the certificate of "
            "the authority that signed the broker's certificate, and connect to a host name that "
            "is in the broker's certificate"
        )
    if _is_certificate_rejected(error):
        return (
            f"failed, because the broker rejects the client's certificate, or requires one: "
            f"{reason}. Set ssl.keystore.location (or ssl.certificate.location and "
            "ssl.key.location) to a PEM file with a key and a certificate that the broker trusts"
        )
    return (
        f"was rejected by the broker: {reason}. Check security.protocol and the sasl and ssl "
        "settings"
    )
