"""What librdkafka reports, told in Millstream's words: what failed, where, why probably, what to
do."""

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
from millstream.kafka.rights import NOTHING_KNOWN, Needs, missing_right, told
from millstream.kafka.settings.tokens import LibrdkafkaTokens

#: librdkafka deals with these itself by trying again; they are worth a line in the log.
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
        # A partition without leader; partitions that do not exist are sorted out before.
        KafkaError._NOENT,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)

#: The topic or partition does not exist; of an illegal name there can be none.
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
    # While a cluster starts, too few of its brokers have registered.
    KafkaError.INVALID_REPLICATION_FACTOR,
}

#: The login is refused, or what the user may not do.
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

#: What a broker answers to a login that follows within a second of another on the same connection,
#: as it may while a token is about to run out. librdkafka connects anew.
_TOO_SOON: Final = "Request not valid in current SASL state"

#: How TLS says that the other end does not like our certificate, or wants one (RFC 8446, 6.2).
_CERTIFICATE_ALERT: Final = re.compile(r"SSL alert number (4[2-68]|116)\b")


def client_error(
    error: KafkaError,
    what: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    needs: Needs = NOTHING_KNOWN,
) -> StreamsError:
    """The error to raise for one that librdkafka reported.

    Args:
        error: what it reported.
        what: what was being done, as the start of a sentence: "Reading records".
        topic: the topic concerned, if any.
        partition: its partition.
        offset: the offset there.
        needs: which right it takes, and who asks.
    """
    code, reason = error.code(), error.str().rstrip(".")
    if code in UNKNOWN_TOPIC:
        return UnknownTopicError(
            f"{what} failed, because the topic or partition does not exist (any more): {reason}. "
            "Create it, or correct its name.",
            topic=topic,
            partition=partition,
        )
    right = missing_right(code, topic, needs)
    if right is not None:
        return AccessDeniedError(
            f"{what} was refused by the broker: {told([right], needs.user)}",
            topic=topic,
            partition=partition,
        )
    if is_access_error(error):
        return AccessDeniedError(f"{what} {_refusal(error)}.", topic=topic, partition=partition)
    if code in TRANSIENT:
        return BrokerUnavailableError(
            f"{what} failed: {reason}. Check that the brokers run and can be reached.",
            topic=topic,
            partition=partition,
        )
    return StreamsError(
        f"{what} failed: {reason} ({error.name()}).",
        topic=topic,
        partition=partition,
        offset=offset,
    )


def creation_problem(topic: str, error: KafkaError, user: str = "") -> str:
    """Why a topic is not there yet, where waiting may help.

    Args:
        topic: the topic.
        error: what librdkafka reported.
        user: who wants it created, if that is known.

    Raises:
        TopologyError: the broker will not create it like this.
        AccessDeniedError: the user may not create topics.
    """
    code, reason = error.code(), error.str().rstrip(".")
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        # Either it is fine, or it is still being deleted; whether it can be seen tells.
        return f"Topic {topic} is being deleted"
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        return f"{reason}. Start more brokers, or lower replication_factor"
    if code in _RETRIED_CREATION:
        return f"Topic {topic}: {reason}"
    if is_access_error(error):
        raise client_error(error, "Creating a topic", topic=topic, needs=Needs(user, "Create"))
    raise TopologyError(f"The broker does not create the topic: {reason}.", topic=topic)


def login_error(error: KafkaError, settings: Mapping[str, Any]) -> StreamsError:
    """The error to raise when it is a connection that `is_access_error` speaks of.

    Args:
        error: what librdkafka reported.
        settings: the client's.
    """
    tokens = settings.get("oauth_cb")
    why = tokens.supply.failure if isinstance(tokens, LibrdkafkaTokens) else None
    # librdkafka only knows that its callback raised.
    return why or AccessDeniedError(
        f"Connecting to {settings['bootstrap.servers']} {_refusal(error)}."
    )


def is_access_error(error: KafkaError) -> bool:
    """Whether one side refused the other, or the operation; trying again will not help."""
    if _TOO_SOON in error.str():
        return False
    return error.code() in ACCESS or _is_untrusted(error) or _wants_another_certificate(error)


def _is_untrusted(error: KafkaError) -> bool:
    # Other failures of a handshake may pass, for example when a broker ends in the midst of it.
    return error.code() == KafkaError._SSL and "certificate verify failed" in error.str()


def _wants_another_certificate(error: KafkaError) -> bool:
    return _CERTIFICATE_ALERT.search(error.str()) is not None


def _refusal(error: KafkaError) -> str:
    reason = error.str().rstrip(".")
    if _is_untrusted(error):
        return (
            f"failed, because the broker's certificate is not trusted: {reason}. Let "
            "ssl.truststore.location (or ssl.ca.location) name a PEM file with the authority that "
            "signed it, and connect to a host name that it is made out to"
        )
    if _wants_another_certificate(error):
        return (
            f"failed, because the broker does not accept this client's certificate, or wants one: "
            f"{reason}. Let ssl.keystore.location (or ssl.certificate.location and "
            "ssl.key.location) name a PEM file with a key and a certificate that the broker trusts"
        )
    return (
        f"was refused by the broker: {reason}. Check security.protocol and the sasl and ssl "
        "settings"
    )
