"""Translation of kafka-python's errors to Millstream's."""

from __future__ import annotations

import re
from typing import Final

from kafka import errors as client_errors

from millstream.errors import (
    AccessDeniedError,
    BrokerUnavailableError,
    ConfigError,
    GroupMembershipError,
    RebalanceInProgressError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.user_permissions import Permission, permission_advice

#: Python's names for the TLS alerts with which the broker rejects the client's certificate.
_CERTIFICATE_ALERT: Final = re.compile(
    "ALERT_(BAD_CERTIFICATE|CERTIFICATE_|UNKNOWN_CA|UNSUPPORTED_CERTIFICATE)"
)
_PARTITION: Final = re.compile(r"-\d+$")


def membership_error(
    error: BaseException, *, group_id: str, instance_id: str | None, user: str = ""
) -> StreamsError:
    """Convert an error that ended a membership; the original error is the cause."""
    failure = _group_error(error, group_id, instance_id, user)
    if failure is not error:
        failure.__cause__ = error
    return failure


def _group_error(
    error: BaseException, group_id: str, instance_id: str | None, user: str
) -> StreamsError:
    if isinstance(error, StreamsError):
        return error
    if isinstance(error, client_errors.FencedInstanceIdError):
        return GroupMembershipError(
            f"Another process joined group {group_id!r} as static member {instance_id!r}, so this "
            "member was fenced. Give each process its own group.instance.id, and stop the older "
            "process before starting a replacement."
        )
    if isinstance(error, client_errors.GroupAuthorizationFailedError):
        return GroupMembershipError(
            f"This user may not join group {group_id!r}, whose name is the application id. "
            f"{permission_advice([Permission('Read', 'group', group_id)], user)}"
        )
    if isinstance(error, client_errors.TopicAuthorizationFailedError):
        return GroupMembershipError(
            f"This user may not read topics of group {group_id!r}. "
            + permission_advice(
                [Permission("Read", "topic", name) for name in _topics_of(error)], user
            )
        )
    if isinstance(error, client_errors.InconsistentGroupProtocolError):
        return GroupMembershipError(
            f"Group {group_id!r} has members of another kind, for example plain consumers or "
            "share consumers, which cannot agree on an assignment with Millstream. "
            "Choose an application id that no other kind of application uses as its group.id."
        )
    if isinstance(error, client_errors.GroupMaxSizeReachedError):
        return GroupMembershipError(
            f"Group {group_id!r} is full. Raise group.max.size on the brokers, or start fewer "
            "stream threads."
        )
    if isinstance(error, client_errors.InvalidSessionTimeoutError):
        return ConfigError(
            "The broker rejects session.timeout.ms: it must be between the broker's "
            "group.min.session.timeout.ms and group.max.session.timeout.ms."
        )
    if isinstance(error, client_errors.InvalidGroupIdError):
        return ConfigError(f"The broker rejects the application id {group_id!r} as a group id.")
    return _connection_error(error, group_id)


def _connection_error(error: BaseException, group_id: str) -> StreamsError:
    if _is_untrusted(error):
        return AccessDeniedError(
            f"The broker's certificate is not trusted: {_detail(error)}. Set "
            "ssl.truststore.location (or ssl.ca.location) to a PEM file with the certificate of "
            "the authority that signed the broker's certificate, and connect to a host name that "
            "is in the broker's certificate."
        )
    if _is_certificate_rejected(error):
        return AccessDeniedError(
            "The broker rejects the client's certificate, or requires one: "
            f"{_detail(error)}. Set ssl.keystore.location (or ssl.certificate.location and "
            "ssl.key.location) to a PEM file with a key and a certificate that the broker trusts."
        )
    if is_login_error(error):
        return AccessDeniedError(
            f"The broker rejected the login: {_detail(error)}. "
            "Check security.protocol and the sasl settings."
        )
    if isinstance(error, client_errors.IncompatibleBrokerVersion):
        return ConfigError(
            f"The server is too old or is not a broker: {_detail(error)}. Kafka 2.3 or later is "
            "required, and bootstrap.servers must name brokers, not controllers."
        )
    if isinstance(error, client_errors.KafkaConfigurationError | ValueError):
        return ConfigError(f"The Kafka client rejects its settings: {_detail(error)}")
    return GroupMembershipError(
        f"The member of group {group_id!r} failed with {type(error).__name__}: {_detail(error)}"
    )


def is_login_error(error: BaseException) -> bool:
    """Whether the client or the broker rejected the connection.

    If so, retries do not help.
    """
    if _is_untrusted(error) or _is_certificate_rejected(error):
        return True
    return isinstance(
        error,
        client_errors.SaslAuthenticationFailedError
        | client_errors.UnsupportedSaslMechanismError
        | client_errors.IllegalSaslStateError,
    )


def _is_untrusted(error: BaseException) -> bool:
    # kafka-python only keeps the text of an SSL error.
    return isinstance(
        error, client_errors.KafkaConnectionError
    ) and "CERTIFICATE_VERIFY_FAILED" in str(error)


def _is_certificate_rejected(error: BaseException) -> bool:
    return (
        isinstance(error, client_errors.KafkaConnectionError)
        and _CERTIFICATE_ALERT.search(str(error)) is not None
    )


def commit_error(
    error: BaseException, *, group_id: str, generation: int, user: str = ""
) -> StreamsError:
    """Convert the error of a commit to an error that the stream thread handles."""
    failure: StreamsError
    if isinstance(error, StreamsError):
        return error
    if isinstance(error, client_errors.RebalanceInProgressError):
        failure = RebalanceInProgressError(
            f"Group {group_id!r} is rebalancing, so nothing was committed. Commit again after the "
            "rebalance."
        )
    elif isinstance(
        error,
        client_errors.CommitFailedError
        | client_errors.UnknownMemberIdError
        | client_errors.IllegalGenerationError
        | client_errors.FencedInstanceIdError,
    ):
        failure = TaskMigratedError(
            f"The commit was rejected because this member is no longer in group {group_id!r} "
            f"(its generation was {generation}): other members may already own its partitions. "
            "The work since the last commit will be repeated."
        )
    elif isinstance(error, client_errors.OffsetMetadataTooLargeError):
        failure = StreamsError(
            "The metadata of a committed offset is longer than the broker's "
            "offset.metadata.max.bytes allows."
        )
    elif isinstance(error, client_errors.AuthorizationError):
        topics = [Permission("Read", "topic", name) for name in _topics_of(error)]
        is_topic = isinstance(error, client_errors.TopicAuthorizationFailedError)
        missing = topics if is_topic else [Permission("Read", "group", group_id)]
        failure = GroupMembershipError(
            f"This user may not commit or read offsets of group {group_id!r}. "
            + permission_advice(missing, user)
        )
    elif isinstance(error, client_errors.KafkaError) and error.retriable:
        failure = BrokerUnavailableError(
            f"The coordinator of group {group_id!r} did not respond in time: "
            f"{error.args[0] if error.args else type(error).__name__}"
        )
    else:
        failure = StreamsError(
            f"The coordinator of group {group_id!r} responded with {type(error).__name__}: "
            f"{_detail(error)}"
        )
    failure.__cause__ = error
    return failure


def _topics_of(error: BaseException) -> list[str]:
    """Return the topics in the text of an error.

    The text may name partitions, such as `in-0`.
    """
    names = [name.strip() for name in _detail(error).rpartition(": ")[2].split(",")]
    return [_PARTITION.sub("", name) for name in names]


def _detail(error: BaseException) -> str:
    return str(error) or type(error).__name__
