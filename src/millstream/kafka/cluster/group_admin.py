"""Admin clients for tools: the groups, topics and permissions of applications."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # it has no __all__
from kafka import KafkaAdminClient
from kafka import errors as client_errors
from kafka.admin import MemberToRemove

from millstream.clock import Deadline
from millstream.config.streams_config import StreamsConfig
from millstream.errors import BrokerUnavailableError, StreamsError
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.librdkafka_errors import TRANSIENT, client_error
from millstream.kafka.settings.librdkafka_settings import create_client, kafka_python_settings
from millstream.kafka.user_permissions import AccessContext, user_of
from millstream.record import TopicPartition

_TIMEOUT_MS: Final = 30_000
_RETRY_MS: Final = 100
#: The broker's errors for a commit from outside of a group that has members.
_HAS_MEMBERS: Final = frozenset(
    {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
)

_NAME: Final = "command-line"


class GroupMemberInfo(NamedTuple):
    """A member of a consumer group, as described by the broker.

    Only static members have an instance id."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupAdmin(ClusterAdmin):
    """An admin client for groups, which also deletes topics."""

    def groups(self, timeout_ms: int = _TIMEOUT_MS) -> list[str]:
        """Return the ids of the consumer groups on all brokers that respond."""
        client = self._client
        try:
            future = client.list_consumer_groups(request_timeout=timeout_ms / 1_000)
            listed = future.result(timeout_ms / 1_000 + 1)
        except KafkaException as error:
            raise self._failure(error.args[0], "Listing groups", None, client) from error
        return sorted(group.group_id for group in listed.valid)

    def members(self, group: str, timeout_ms: int = _TIMEOUT_MS) -> list[GroupMemberInfo]:
        """Return the members of a group; an empty list if the group does not exist."""
        described = self._request(
            lambda client, timeout_s: client.describe_consumer_groups(
                [group], request_timeout=timeout_s
            ),
            Deadline(self._clock, timeout_ms),
            "Looking up the group",
            ignoring=frozenset({KafkaError.GROUP_ID_NOT_FOUND}),
        )
        return [_member(each) for each in described[group].members] if group in described else []

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], timeout_ms: int = _TIMEOUT_MS
    ) -> None:
        """Set the offsets of a group. Raises StreamsError if the group has members."""
        if not offsets:
            return
        requested = [ClientPartition(*partition, offset) for partition, offset in offsets.items()]
        settings = {**self._settings, "enable.auto.commit": False, "group.id": group}
        consumer = create_client(Consumer, settings)
        deadline = Deadline(self._clock, timeout_ms)
        try:
            while (error := _commit_once(consumer, requested)) is not None:
                if error.code() in _HAS_MEMBERS:
                    raise StreamsError(
                        f"Group {group!r} has members, so its offsets cannot be set. Stop all "
                        "instances of the application first."
                    )
                if error.code() not in TRANSIENT:
                    access = AccessContext(user_of(self._settings), name=group)
                    raise client_error(error, "Setting offsets", access=access)
                if deadline.passed:
                    raise BrokerUnavailableError(
                        f"The offsets of group {group!r} could not be set: "
                        f"{error.str().rstrip('.')}."
                    )
                self._clock.sleep_ms(deadline.remaining_ms(_RETRY_MS))
        finally:
            consumer.close()

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset of each partition at or after a timestamp, or None."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        requested = {ClientPartition(*partition): spec for partition in partitions}
        if not requested:
            return {}
        offsets = self._offsets(requested, Deadline(self._clock, timeout_ms), lowest=OFFSET_END)
        return {
            TopicPartition(partition.topic, partition.partition): None
            if offset == OFFSET_END
            else offset
            for partition, offset in offsets.items()
        }

    def delete_topics(self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS) -> None:
        """Delete topics with their records. Missing topics are ignored."""
        names = list(topics)
        if names:
            self._request(
                lambda client, timeout_s: client.delete_topics(
                    names, operation_timeout=timeout_s, request_timeout=timeout_s
                ),
                Deadline(self._clock, timeout_ms),
                "Deleting topics",
            )


def _member(described: Any) -> GroupMemberInfo:
    assigned = described.assignment.topic_partitions if described.assignment else []
    return GroupMemberInfo(
        described.member_id,
        described.group_instance_id or None,
        described.client_id,
        described.host.lstrip("/"),
        tuple(sorted(TopicPartition(each.topic, each.partition) for each in assigned)),
    )


def _commit_once(consumer: Consumer, offsets: list[ClientPartition]) -> KafkaError | None:
    try:
        done = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found
    return next((each.error for each in done or () if each.error is not None), None)


class PermissionsAdmin(ClusterAdmin):
    """An admin client for permissions (KIP-430)."""

    def allowed_on_topics(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[str, frozenset[str]]:
        """Return the permitted operations on each topic, such as READ.

        Omits topics that do not exist (if the user is allowed to describe them) and topics whose
        operations the broker does not return.
        """
        requested = list(topics)
        if not requested:
            return {}
        described, errors = self._request_once(
            self._client,
            lambda client, timeout_s: client.describe_topics(
                TopicCollection(requested),
                include_authorized_operations=True,
                request_timeout=timeout_s,
            ),
            Deadline(self._clock, timeout_ms),
            "Looking up topics",
        )
        found = {topic: _names(description) for topic, description in described.items()}
        # Empty sets mean "unknown": a user with access to a topic can at least describe it.
        found = {topic: names for topic, names in found.items() if names}
        for topic, error in errors.items():
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[topic] = frozenset()
        return found

    def allowed_on_group(self, group: str, timeout_ms: int = _TIMEOUT_MS) -> frozenset[str] | None:
        """Return the permitted operations on a group, which does not need to exist.

        Returns None if they are unknown.
        """
        described, errors = self._request_once(
            self._client,
            lambda client, timeout_s: client.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=timeout_s
            ),
            Deadline(self._clock, timeout_ms),
            "Looking up the group",
        )
        for error in errors.values():
            # Other errors may be temporary, for example while the first group of a cluster waits
            # for the creation of the offsets topic.
            is_denied = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            return frozenset() if is_denied else None
        return _names(described[group]) or None


def _names(description: Any) -> frozenset[str]:
    return frozenset(operation.name for operation in description.authorized_operations or ())


def remove_members(config: StreamsConfig, members: Iterable[GroupMemberInfo]) -> None:
    """Remove members from an application's group.

    A running member will rejoin. Raises StreamsError if the broker rejects the request or does not
    respond. Only kafka-python's admin client supports this.
    """
    given = kafka_python_settings(config, client_id=f"{config.application_id}-{_NAME}")
    settings = {
        name: value for name, value in given.items() if name in KafkaAdminClient.DEFAULT_CONFIG
    }
    # A static member is identified by its instance id, other members by their member id.
    leaving = [
        MemberToRemove(group_instance_id=each.instance_id)
        if each.instance_id
        else MemberToRemove(member_id=each.member_id)
        for each in members
    ]
    log = logging.getLogger("kafka")
    level = log.level
    # The error is raised below, so kafka-python does not need to log it.
    log.setLevel(logging.CRITICAL)
    try:
        client = KafkaAdminClient(**settings)
        try:
            results = client.remove_group_members(config.application_id, leaving)
        finally:
            client.close()
        # A member that has already left counts as removed.
        removed = (client_errors.NoError, client_errors.UnknownMemberIdError)
        failed = [error for error in results.values() if error not in removed]
        if failed:
            raise failed[0]
    except client_errors.KafkaError as error:
        raise StreamsError(
            f"The members of group {config.application_id!r} could not be removed: "
            f"{type(error).__name__} {error}. Stop the instances, or wait until their session "
            "timeout has passed."
        ) from error
    finally:
        log.setLevel(level)
