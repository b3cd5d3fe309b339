"""Which records of a partition are tasks to work on, and how many of them begin."""

from __future__ import annotations

from typing import Final

from millstream.clock import Clock
from millstream.operators.apart.subscription.outgoing import Outgoing
from millstream.operators.batch import Batch
from millstream.operators.operator import Output
from millstream.subscriptions.limits.ignored_keys import IgnoredKeys
from millstream.subscriptions.limits.key_quota import KeyQuota
from millstream.subscriptions.limits.rate_limiter import RateLimiter
from millstream.subscriptions.metrics import PartitionMetrics
from millstream.subscriptions.plan import SubscriptionPart
from millstream.subscriptions.properties.properties import UNLIMITED, Properties

_US_IN_MS: Final = 1_000


class Admission:
    """Rate, quota and ignored keys of one partition.

    Args:
        part: what the subscription does with the topic.
        properties: those of now.
        clock: the time.
    """

    def __init__(self, part: SubscriptionPart, properties: Properties, clock: Clock) -> None:
        self._part = part
        self._properties = properties
        self._clock = clock
        self._limiter = RateLimiter(self._rate, now_us=self._now_us)
        self._quota = KeyQuota(self._quota_rate)
        self._ignored = IgnoredKeys(properties.ignore_keys)

    def change(self, new: Properties) -> None:
        """From now on these hold."""
        old, self._properties = self._properties, new
        self._limiter.change_rate(self._rate, self._now_us)
        self._quota.change_rate(self._quota_rate)
        if new.ignore_keys != old.ignore_keys:
            self._ignored = IgnoredKeys(new.ignore_keys)

    @property
    def is_limited(self) -> bool:
        """Whether there is a rate."""
        return self._limiter.rate != UNLIMITED

    @property
    def is_stopped(self) -> bool:
        """Whether the rate is 0."""
        return self._limiter.rate == 0

    @property
    def permits(self) -> int:
        """How many tasks may begin now by the rate."""
        return self._limiter.permits(self._now_us)

    def charge(self, count: int) -> None:
        """So many tasks begin, no more than `permits` has just said."""
        self._limiter.take(count)

    def admitted(
        self, batch: Batch, outgoing: Outgoing, metrics: PartitionMetrics, output: Output
    ) -> Batch:
        """The records to process; those above the quota of their key go elsewhere.

        Args:
            batch: all that were taken, at least one.
            outgoing: writes those above the quota.
            metrics: of the partition.
            output: where they are written.
        """
        ignored = self._ignored.among(batch.keys)
        if ignored:
            metrics.count("tasks.ignored", len(ignored))
            gone = set(ignored)
            batch = batch.take([index for index in range(len(batch)) if index not in gone])
        if self._quota.rate == UNLIMITED or not batch.keys:
            return batch
        above = self._quota.violations(batch.keys, self._clock.monotonic_ms())
        if not above:
            return batch
        legacy = self._properties.legacy_parse_fallback_enabled
        outgoing.shape(batch, above, output, legacy=legacy)
        metrics.count("shaping.queued.tasks", len(above))
        return batch.take([index for index in range(len(batch)) if index not in above])

    @property
    def _now_us(self) -> int:
        return self._clock.monotonic_ms() * _US_IN_MS

    @property
    def _rate(self) -> int:
        properties, part = self._properties, self._part
        if part.role != "shaping":
            return properties.processing_rate_per_partition
        rates = properties.shaping_topic_processing_rate_per_partition
        return rates.get(part.topic, properties.per_key_quota_processing_rate)

    @property
    def _quota_rate(self) -> int:
        if self._part.role != "origin" or self._part.shaping is None:
            return UNLIMITED
        return self._properties.per_key_quota_processing_rate
