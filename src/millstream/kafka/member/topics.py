"""When a change of the topics themselves calls for a rebalance.

The leader watches the topics of the whole group: a partition that was added later, or a topic that
came or went, is nobody's until the group rebalances. What the topics looked like when the present
assignment was made is read off that assignment, because the assignor may have created topics
while it worked: those must not look like a change afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock
from millstream.kafka.member.member_assignor import MemberAssignment, MemberSubscription

#: How often to look while a topic is missing: creation is waited for, so minutes would be long.
_MISSING_INTERVAL_MS: Final = 1_000
#: A broker that lags behind may not know a new topic yet; so often in a row is not lagging.
_LOOKS_UNTIL_GONE: Final = 3


@dataclass
class _Reported:
    """A partition count that a rebalance was asked for, so that it is not asked for again and
    again while the assignor does not take it up."""

    count: int
    times: int
    not_before_ms: int


class TopicWatch:
    """The partition counts on which the present assignment stands, and whether they still hold.

    A count that goes on differing after a rebalance, because the assignor leaves partitions aside
    or works on older metadata, is reported again after `interval_ms`, then twice that, and so on.

    Args:
        clock: where the time is read.
        interval_ms: how often to look (`metadata.max.age.ms`).
    """

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._counts: dict[str, int] = {}
        self._reported: dict[str, _Reported] = {}
        self._looks_missing: dict[str, int] = {}
        self._next_look_ms = clock.monotonic_ms() + interval_ms

    @property
    def topics(self) -> frozenset[str]:
        """The topics watched; none if this member does not lead the group."""
        return frozenset(self._counts)

    @property
    def due(self) -> bool:
        """Whether it is time to look again."""
        return self._clock.monotonic_ms() >= self._next_look_ms

    def stop(self) -> None:
        """Watch nothing: another member leads."""
        self._counts = {}
        self._looks_missing = {}

    def begin(
        self,
        members: Mapping[str, MemberSubscription],
        assignments: Mapping[str, MemberAssignment],
        counts_before: Mapping[str, int],
    ) -> None:
        """Watch all topics of the group from the state that an assignment stands on.

        Args:
            members: what the members subscribed to. What they own counts too: a partition that
                moves is assigned to nobody until its old owner has let go of it.
            assignments: what they were given.
            counts_before: partition counts seen before the assignor worked, for topics of which
                nothing is assigned; topics that did not exist are left out.
        """
        known: dict[str, int] = {}
        for partitions in (
            *(assignment.partitions for assignment in assignments.values()),
            *(member.owned_partitions for member in members.values()),
        ):
            for topic, partition in partitions:
                known[topic] = max(known.get(topic, 0), partition + 1)
        topics = {topic for member in members.values() for topic in member.topics} | set(known)
        self.begin_from({**counts_before, **known}, topics)

    def begin_from(self, counts: Mapping[str, int], topics: Iterable[str]) -> None:
        """Watch topics from given partition counts on; those that are not there do not exist."""
        self._counts = {topic: counts.get(topic, 0) for topic in sorted(topics)}
        self._looks_missing = {}
        self._schedule(missing=0 in self._counts.values())

    def look_failed(self) -> None:
        """The cluster did not answer: look again soon."""
        self._schedule(missing=True)

    def looked(self, counts: Mapping[str, int]) -> list[str]:
        """Compare with the partition counts of now; topics that do not exist are left out.

        Returns:
            What changed, as sentences; nothing if no rebalance is called for.
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
            self._looks_missing.pop(topic, None)
        elif expected:
            self._looks_missing[topic] = self._looks_missing.get(topic, 0) + 1
            if self._looks_missing[topic] < _LOOKS_UNTIL_GONE:
                return None
        if count == expected or not self._may_report(topic, count):
            return None
        if not expected:
            return f"topic {topic} appeared with {count} partitions"
        if not count:
            return f"topic {topic} is gone"
        return f"topic {topic} has {count} partitions instead of {expected}"

    def _may_report(self, topic: str, count: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        earlier = self._reported.get(topic)
        times = earlier.times if earlier is not None and earlier.count == count else 0
        if times and earlier is not None and now_ms < earlier.not_before_ms:
            return False
        # Doubling for ever would overflow nothing but patience: 2^10 intervals are days already.
        pause_ms = self._interval_ms * 2 ** min(times, 10)
        self._reported[topic] = _Reported(count, times + 1, now_ms + pause_ms)
        return True

    def _schedule(self, *, missing: bool) -> None:
        interval_ms = self._interval_ms
        if missing:
            interval_ms = min(interval_ms, _MISSING_INTERVAL_MS)
        self._next_look_ms = self._clock.monotonic_ms() + interval_ms
