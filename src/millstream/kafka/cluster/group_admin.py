"""Changes of what an application has in the cluster, from outside: its group's offsets and members,
and its topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # it has no __all__

from millstream.clock import Deadline
from millstream.errors import BrokerUnavailableError, StreamsError
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.librdkafka_errors import TRANSIENT, client_error
from millstream.kafka.rights import Needs, user_of
from millstream.kafka.settings.clients import create_client
from millstream.record import TopicPartition

_TIMEOUT_MS: Final = 30_000
_RETRY_MS: Final = 100
#: What a broker answers to one who commits for a group that somebody is in.
_HAS_MEMBERS: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)


class Member(NamedTuple):
    """A member of a consumer group, as the broker tells of it.

    Args:
        member_id: the broker's name for it.
        instance_id: of a static member (`group.instance.id`), else None.
        client_id: what it calls itself.
        host: from where it has connected.
        partitions: what it reads.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupAdmin(ClusterAdmin):
    """An admin client that knows about groups, and deletes topics."""

    def groups(self, timeout_ms: int = _TIMEOUT_MS) -> list[str]:
        """The ids of the consumer groups of the cluster, as far as its brokers tell.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        client = self._client
        try:
            future = client.list_consumer_groups(request_timeout=timeout_ms / 1_000)
            listed = future.result(timeout_ms / 1_000 + 1)
        except KafkaException as error:
            raise self._failure(error.args[0], "Listing groups", None, client) from error
        return sorted(group.group_id for group in listed.valid)

    def members(self, group: str, timeout_ms: int = _TIMEOUT_MS) -> list[Member]:
        """The members of a group; none where there is no such group.

        Raises:
            BrokerUnavailableError: no broker answered in time.
            AccessDeniedError: the user may not see the group.
        """
        answers = self._ask(
            lambda client, timeout_s: client.describe_consumer_groups(
                [group], request_timeout=timeout_s
            ),
            Deadline(self._clock, timeout_ms),
            "Looking up the group",
            ignoring=frozenset({KafkaError.GROUP_ID_NOT_FOUND}),
        )
        return [_member(each) for each in answers[group].members] if group in answers else []

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], timeout_ms: int = _TIMEOUT_MS
    ) -> None:
        """Set the offsets of a group that has no members.

        Raises:
            StreamsError: it has members.
            BrokerUnavailableError: no broker answered in time.
            AccessDeniedError: the user may not read with the group.
        """
        if not offsets:
            return
        asked = [ClientPartition(*place, offset) for place, offset in offsets.items()]
        settings = {**self._settings, "enable.auto.commit": False, "group.id": group}
        consumer = create_client(Consumer, settings)
        deadline = Deadline(self._clock, timeout_ms)
        try:
            while (error := _commit_once(consumer, asked)) is not None:
                if error.code() in _HAS_MEMBERS:
                    raise StreamsError(
                        f"Group {group!r} has members, so its offsets cannot be set. Stop all "
                        "instances of the application first."
                    )
                if error.code() not in TRANSIENT:
                    needs = Needs(user_of(self._settings), name=group)
                    raise client_error(error, "Setting offsets", needs=needs)
                if deadline.passed:
                    raise BrokerUnavailableError(
                        f"The offsets of group {group!r} could not be set: "
                        f"{error.str().rstrip('.')}."
                    )
                self._clock.sleep_ms(deadline.remaining_ms(_RETRY_MS))
        finally:
            consumer.close()

    def offsets_at(
        self,
        partitions: Iterable[TopicPartition],
        timestamp_ms: int,
        timeout_ms: int = _TIMEOUT_MS,
    ) -> dict[TopicPartition, int | None]:
        """The offset of the first record of each partition that is no older than a timestamp; None
        where there is none.

        Raises:
            BrokerUnavailableError: not all brokers answered in time.
        """
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        asked = {ClientPartition(*place): spec for place in partitions}
        if not asked:
            return {}
        offsets = self._offsets(asked, Deadline(self._clock, timeout_ms), lowest=OFFSET_END)
        return {
            TopicPartition(place.topic, place.partition): None if offset == OFFSET_END else offset
            for place, offset in offsets.items()
        }

    def delete_topics(self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS) -> None:
        """Delete topics and all that is in them. Those that do not exist are passed over.

        Raises:
            AccessDeniedError: the user may not.
            BrokerUnavailableError: no broker answered in time.
            StreamsError: a broker refuses.
        """
        names = list(topics)
        if names:
            self._ask(
                lambda client, timeout_s: client.delete_topics(
                    names, operation_timeout=timeout_s, request_timeout=timeout_s
                ),
                Deadline(self._clock, timeout_ms),
                "Deleting topics",
            )


def _member(described: Any) -> Member:
    assigned = described.assignment.topic_partitions if described.assignment else []
    return Member(
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
