"""Errors of the Kafka client, told in Millstream's words: what failed, why probably, what to do."""

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
from millstream.kafka.rights import Right, told

#: How Python names what the other end of TLS has against our certificate.
_CERTIFICATE_ALERT: Final = re.compile(
    "ALERT_(BAD_CERTIFICATE|CERTIFICATE_|UNKNOWN_CA|UNSUPPORTED_CERTIFICATE)"
)
_PARTITION: Final = re.compile(r"-\d+$")


def membership_error(
    error: BaseException, *, group_id: str, instance_id: str | None, user: str = ""
) -> StreamsError:
    """Why a member cannot go on, with the client's error as the cause.

    Args:
        error: what it ran into.
        group_id: its group.
        instance_id: its `group.instance.id`, if it has one.
        user: as whom it logs in, if that is known.
    """
    error_told = _tell(error, group_id, instance_id, user)
    if error_told is not error:
        error_told.__cause__ = error
    return error_told


def _tell(error: BaseException, group_id: str, instance_id: str | None, user: str) -> StreamsError:
    if isinstance(error, StreamsError):
        return error
    if isinstance(error, client_errors.FencedInstanceIdError):
        return GroupMembershipError(
            f"Another process joined group {group_id!r} as static member {instance_id!r}, so this "
            "one was fenced. Give each process its own group.instance.id, and stop the older "
            "process before starting a replacement."
        )
    if isinstance(error, client_errors.GroupAuthorizationFailedError):
        return GroupMembershipError(
            f"The broker does not let this user join group {group_id!r}, which is named after the "
            f"application id. {told([Right('Read', 'group', group_id)], user)}"
        )
    if isinstance(error, client_errors.TopicAuthorizationFailedError):
        return GroupMembershipError(
            f"The broker does not let this user see topics that group {group_id!r} reads. "
            + told([Right("Read", "topic", name) for name in _topics_of(error)], user)
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
            "The broker refuses session.timeout.ms: it must lie between the broker's "
            "group.min.session.timeout.ms and group.max.session.timeout.ms."
        )
    if isinstance(error, client_errors.InvalidGroupIdError):
        return ConfigError(f"The broker refuses the application id {group_id!r} as a group id.")
    return _tell_connection(error, group_id)


def _tell_connection(error: BaseException, group_id: str) -> StreamsError:
    if _is_untrusted(error):
        return AccessDeniedError(
            f"The broker's certificate is not trusted: {_detail(error)}. Let "
            "ssl.truststore.location (or ssl.ca.location) name a PEM file with the authority that "
            "signed it, and connect to a host name that it is made out to."
        )
    if _wants_another_certificate(error):
        return AccessDeniedError(
            "The broker does not accept this client's certificate, or wants one: "
            f"{_detail(error)}. Let ssl.keystore.location (or ssl.certificate.location and "
            "ssl.key.location) name a PEM file with a key and a certificate that the broker trusts."
        )
    if is_login_error(error):
        return AccessDeniedError(
            f"The broker refused the login: {_detail(error)}. "
            "Check security.protocol and the sasl settings."
        )
    if isinstance(error, client_errors.IncompatibleBrokerVersion):
        return ConfigError(
            f"The broker is too old or of another kind: {_detail(error)}. Kafka 2.3 or later is "
            "needed, and bootstrap.servers must name brokers, not controllers."
        )
    if isinstance(error, client_errors.KafkaConfigurationError | ValueError):
        return ConfigError(f"The Kafka client refuses its settings: {_detail(error)}")
    return GroupMembershipError(
        f"The member of group {group_id!r} ended with {type(error).__name__}: {_detail(error)}"
    )


def is_login_error(error: BaseException) -> bool:
    """Whether one side refused the other: trying to connect again will not help."""
    if _is_untrusted(error) or _wants_another_certificate(error):
        return True
    return isinstance(
        error,
        client_errors.SaslAuthenticationFailedError
        | client_errors.UnsupportedSaslMechanismError
        | client_errors.IllegalSaslStateError,
    )


def _is_untrusted(error: BaseException) -> bool:
    # The client keeps the text only of what Python's ssl says.
    return isinstance(
        error, client_errors.KafkaConnectionError
    ) and "CERTIFICATE_VERIFY_FAILED" in str(error)


def _wants_another_certificate(error: BaseException) -> bool:
    return (
        isinstance(error, client_errors.KafkaConnectionError)
        and _CERTIFICATE_ALERT.search(str(error)) is not None
    )


def commit_error(
    error: BaseException, *, group_id: str, generation: int, user: str = ""
) -> StreamsError:
    """Why a commit failed, as the stream thread has to act on it."""
    failure: StreamsError
    if isinstance(error, StreamsError):
        return error
    if isinstance(error, client_errors.RebalanceInProgressError):
        failure = RebalanceInProgressError(
            f"Group {group_id!r} is rebalancing, so nothing was committed. Commit again after it."
        )
    elif isinstance(
        error,
        client_errors.CommitFailedError
        | client_errors.UnknownMemberIdError
        | client_errors.IllegalGenerationError
        | client_errors.FencedInstanceIdError,
    ):
        failure = TaskMigratedError(
            f"The commit was refused because this member is no longer in group {group_id!r} "
            f"(its generation was {generation}): other members may own its partitions already. "
            "The work since the last commit will be done again."
        )
    elif isinstance(error, client_errors.OffsetMetadataTooLargeError):
        failure = StreamsError(
            "The text committed beside an offset is longer than the broker's "
            "offset.metadata.max.bytes allows."
        )
    elif isinstance(error, client_errors.AuthorizationError):
        topics = [Right("Read", "topic", name) for name in _topics_of(error)]
        is_topic = isinstance(error, client_errors.TopicAuthorizationFailedError)
        missing = topics if is_topic else [Right("Read", "group", group_id)]
        failure = GroupMembershipError(
            f"The broker does not let this user commit or read offsets of group {group_id!r}. "
            + told(missing, user)
        )
    elif isinstance(error, client_errors.KafkaError) and error.retriable:
        failure = BrokerUnavailableError(
            f"The coordinator of group {group_id!r} did not answer in time: "
            f"{error.args[0] if error.args else type(error).__name__}"
        )
    else:
        failure = StreamsError(
            f"The coordinator of group {group_id!r} answered {type(error).__name__}: "
            f"{_detail(error)}"
        )
    failure.__cause__ = error
    return failure


def _topics_of(error: BaseException) -> list[str]:
    """Those that an error names, as `in-0` where it is about a partition."""
    names = [name.strip() for name in _detail(error).rpartition(": ")[2].split(",")]
    return [_PARTITION.sub("", name) for name in names]


def _detail(error: BaseException) -> str:
    return str(error) or type(error).__name__
