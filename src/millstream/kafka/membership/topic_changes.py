"""Detection of topic changes that require a rebalance.

The leader watches the topics of the whole group, because an added partition or topic has no owner
until the group rebalances. The partition counts to compare with are derived from the current
assignment, because the assignor itself may have created topics, which must not count as a change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka import errors as client_errors

from millstream.clock import Clock
from millstream.kafka.kafka_python import MetadataRequest
from millstream.kafka.membership.connections import MemberConnections
from millstream.kafka.membership.member_assignor import MemberAssignment, MemberSubscription

#: The interval between checks while a topic is missing. Short, because the topic may be created
#: soon.
_MISSING_INTERVAL_MS: Final = 1_000
#: A topic counts as deleted after this many checks, because a broker with old metadata may report a
#: new topic as missing.
_CHECKS_UNTIL_GONE: Final = 3

#: The timeout of metadata requests. Short, because the member waits for the response; callers
#: retry.
_TIMEOUT_MS: Final = 4_000


@dataclass
class _RequestedCount:
    """A partition count for which a rebalance was requested.

    Avoids repeated requests while the assignor ignores the change.
    """

    count: int
    times: int
    not_before_ms: int


class TopicMonitor:
    """Compares partition counts with those of the current assignment.

    The comparison is due every `metadata.max.age.ms`. A count that still differs after a rebalance,
    because the assignor skips partitions or uses older metadata, is reported again after
    `interval_ms`, and from then on at doubling intervals.
    """

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._counts: dict[str, int] = {}
        self._reported: dict[str, _RequestedCount] = {}
        self._missing_checks: dict[str, int] = {}
        self._next_check_ms = clock.monotonic_ms() + interval_ms

    @property
    def topics(self) -> frozenset[str]:
        """The watched topics; empty if this member is not the leader."""
        return frozenset(self._counts)

    @property
    def is_due(self) -> bool:
        return self._clock.monotonic_ms() >= self._next_check_ms

    def stop(self) -> None:
        """Stop watching, because another member is the leader."""
        self._counts = {}
        self._missing_checks = {}

    def watch_assignment(
        self,
        members: Mapping[str, MemberSubscription],
        assignments: Mapping[str, MemberAssignment],
        counts_before: Mapping[str, int],
    ) -> None:
        """Watch all topics of the group, starting from an assignment.

        Owned partitions count as well: a moving partition has no new owner until its previous owner
        has released it. `counts_before`, fetched before the assignor ran, is for topics without
        assigned partitions; topics that did not exist are absent.
        """
        assigned_counts: dict[str, int] = {}
        for partitions in (
            *(assignment.partitions for assignment in assignments.values()),
            *(member.owned_partitions for member in members.values()),
        ):
            for topic, partition in partitions:
                assigned_counts[topic] = max(assigned_counts.get(topic, 0), partition + 1)
        topics = {topic for member in members.values() for topic in member.topics} | set(
            assigned_counts
        )
        self.watch_counts({**counts_before, **assigned_counts}, topics)

    def watch_counts(self, counts: Mapping[str, int], topics: Iterable[str]) -> None:
        """Watch topics, starting from partition counts.

        Topics missing in `counts` do not exist.
        """
        self._counts = {topic: counts.get(topic, 0) for topic in sorted(topics)}
        self._missing_checks = {}
        self._schedule(missing=0 in self._counts.values())

    def check_failed(self) -> None:
        """Schedule another check soon, because the cluster did not respond."""
        self._schedule(missing=True)

    def compare(self, counts: Mapping[str, int]) -> list[str]:
        """Compare with the current partition counts.

        Topics missing in `counts` do not exist. Returns descriptions of the changes; empty if no
        rebalance is needed.
        """
        changes = [
            change
            for topic in self._counts
            if (change := self._change_of(topic, counts.get(topic, 0))) is not None
        ]
        self._schedule(missing=any(topic not in counts for topic in self._counts))
        return changes

    def _change_of(self, topic: str, count: int) -> str | None:
        expected = self._counts[topic]
        if count:
            self._missing_checks.pop(topic, None)
        elif expected:
            self._missing_checks[topic] = self._missing_checks.get(topic, 0) + 1
            if self._missing_checks[topic] < _CHECKS_UNTIL_GONE:
                return None
        if count == expected or not self._may_report(topic, count):
            return None
        if not expected:
            return f"topic {topic} appeared (partitions: {count})"
        if not count:
            return f"topic {topic} was deleted"
        return f"topic {topic} has {count} partitions instead of {expected}"

    def _may_report(self, topic: str, count: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        earlier = self._reported.get(topic)
        times = earlier.times if earlier is not None and earlier.count == count else 0
        if times and earlier is not None and now_ms < earlier.not_before_ms:
            return False
        # 2^10 intervals are already days.
        pause_ms = self._interval_ms * 2 ** min(times, 10)
        self._reported[topic] = _RequestedCount(count, times + 1, now_ms + pause_ms)
        return True

    def _schedule(self, *, missing: bool) -> None:
        interval_ms = self._interval_ms
        if missing:
            interval_ms = min(interval_ms, _MISSING_INTERVAL_MS)
        self._next_check_ms = self._clock.monotonic_ms() + interval_ms


async def partition_counts(
    connections: MemberConnections, topics: Collection[str]
) -> dict[str, int]:
    """Return the partition counts of the topics that exist. Never creates topics.

    Raises kafka-python's TopicAuthorizationFailedError with the names of the topics, or a
    RetriableError.
    """
    if not topics:
        return {}
    requested = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    counts: dict[str, int] = {}
    denied: list[str] = []
    for topic in (await _metadata(connections, requested)).topics:
        error_type = client_errors.for_code(topic.error_code)
        if error_type is client_errors.NoError:
            counts[topic.name] = len(topic.partitions)
        elif issubclass(error_type, client_errors.TopicAuthorizationFailedError):
            denied.append(topic.name)
    if denied:
        raise client_errors.TopicAuthorizationFailedError(", ".join(sorted(denied)))
    return counts


async def topics_matching(
    connections: MemberConnections, pattern: re.Pattern[str]
) -> tuple[str, ...]:
    """Return the matching topics, except Kafka's internal ones.

    As in Java's consumer, the pattern must match the whole name. Raises a RetriableError.
    """
    return tuple(
        sorted(
            topic.name
            for topic in (await _metadata(connections, MetadataRequest.ALL_TOPICS)).topics
            if not topic.error_code and not topic.is_internal and pattern.fullmatch(topic.name)
        )
    )


async def _metadata(connections: MemberConnections, topics: Any) -> Any:
    request = MetadataRequest(
        topics=topics,
        # Set here, because kafka-python 3.0 does not pass on its setting of that name.
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return await connections.wait_for(connections.send(request), _TIMEOUT_MS)
