"""The properties of a subscription, as a table and as an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from millstream.config_fields import Settings, did_you_mean
from millstream.errors import ConfigError
from millstream.subscriptions.properties.declared import RATES, Applied, Property, declared
from millstream.subscriptions.properties.readings import PREFIX, read

#: No limit at all.
UNLIMITED: Final = -1
#: The highest rate, in tasks per second; Decaton's.
RATE_MAX: Final = 1_000_000


class Properties(Settings):
    """How a subscription works on the records of a partition. Frozen, compares by value.

    All of Decaton's properties in snake_case; docs/build/subscriptions-properties.md has them in a
    table with types, defaults and bounds. What ends in `_ms` is whole milliseconds. Each can also
    be changed while the subscription runs, by `changed` or through a `PropertiesFile`.

    Raises:
        ConfigError: a property is unknown (the nearest known name is suggested), of the wrong type
            or out of bounds.

    Example:
        >>> properties = Properties(partition_concurrency=100, max_pending_records=1_000)
        >>> properties.commit_interval_ms
        1000
        >>> Properties(partition_concurency=100)
        Traceback (most recent call last):
            ...
        millstream.errors.ConfigError: There is no property 'partition_concurency'. \
Did you mean 'partition_concurrency'?
    """

    ignore_keys: tuple[str, ...] = declared(
        "ignore.keys",
        (),
        Applied.AT_ONCE,
        kind="list",
        doc="Records with one of these keys (UTF-8) are finished without being processed, those of "
        "the retry topic as well. Records without a key are never meant.",
    )
    processing_rate_per_partition: int = declared(
        "processing.rate.per.partition",
        UNLIMITED,
        Applied.AT_ONCE,
        kind="int",
        least=UNLIMITED,
        most=RATE_MAX,
        doc="How many tasks of a partition may start in a second; -1 is no limit, 0 stops. "
        "Partitions of the retry topic count by themselves.",
    )
    partition_concurrency: int = declared(
        "partition.concurrency",
        1,
        Applied.DRAINED,
        kind="int",
        least=1,
        doc="How many tasks of a partition are processed at a time; those of one key never are.",
    )
    max_pending_records: int = declared(
        "max.pending.records",
        10_000,
        Applied.AT_ONCE,
        kind="int",
        least=1,
        doc="A partition is paused while so many of its records are not finished, or are finished "
        "behind one that is not.",
    )
    commit_interval_ms: int = declared(
        "commit.interval.ms",
        1_000,
        Applied.NEXT_TIME,
        kind="int",
        least=0,
        doc="How often offsets are committed.",
    )
    group_rebalance_timeout_ms: int = declared(
        "group.rebalance.timeout.ms",
        1_000,
        Applied.NEXT_TIME,
        kind="int",
        least=0,
        doc="How long a rebalance waits for pending tasks before partitions are given away; what "
        "is left is done again by their next owner.",
    )
    processing_shutdown_timeout_ms: int = declared(
        "processing.shutdown.timeout.ms",
        0,
        Applied.NEXT_TIME,
        kind="int",
        least=0,
        doc="How long closing waits for pending tasks; what is left is done again after the next "
        "start.",
    )
    deferred_complete_timeout_ms: int = declared(
        "deferred.complete.timeout.ms",
        -1,
        Applied.NEXT_TASKS,
        kind="int",
        least=-1,
        doc="How long a task may stay incomplete after its processor has returned; -1 is without "
        "end.",
    )
    processor_termination_timeout_ms: int | None = declared(
        "processor.threads.termination.timeout.ms",
        None,
        Applied.NEXT_TIME,
        kind="int",
        least=0,
        doc="How long the running tasks of a partition are waited for when it is given away or "
        "closed; None is as long as they take.",
    )
    per_key_quota_processing_rate: int = declared(
        "per.key.quota.processing.rate",
        UNLIMITED,
        Applied.AT_ONCE,
        kind="int",
        least=UNLIMITED,
        most=RATE_MAX,
        doc="How many tasks of a key and partition may come in a second before further ones go to "
        "the shaping topic; -1 is no limit. Also the rate of shaping topics that have none of "
        "their own.",
    )
    retry_task_in_legacy_format: bool = declared(
        "retry.task.in.legacy.format",
        False,
        Applied.NEXT_TASKS,
        kind="bool",
        doc="Retries are written as `DecatonTaskRequest` without a `dt_meta` header, for consumers "
        "on Decaton before 9.",
    )
    legacy_parse_fallback_enabled: bool = declared(
        "legacy.parse.fallback.enabled",
        False,
        Applied.NEXT_TASKS,
        kind="bool",
        doc="Records without a `dt_meta` header are read as `DecatonTaskRequest`, for producers on "
        "Decaton before 9.",
    )
    shaping_topic_processing_rate_per_partition: dict[str, int] = declared(
        "shaping.topic.processing.rate.per.partition",
        {},
        Applied.AT_ONCE,
        kind=RATES,
        least=UNLIMITED,
        most=RATE_MAX,
        doc="Rates of shaping topics by name, as `processing_rate_per_partition`.",
    )

    @classmethod
    def table(cls) -> tuple[Property, ...]:
        """Every property in the order it is declared: what the reference page is generated from.

        Example:
            >>> Properties.table()[2].name, Properties.table()[2].bounds()
            ('partition_concurrency', 'at least 1')
        """
        return tuple(one for one in cls.settings() if isinstance(one, Property))

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Read what a file or another program has, under our names or Decaton's.

        `decaton.` may be left out, tables in tables are names with dots, numbers and booleans may
        be strings, and None is as good as nothing. Decaton's properties that mean nothing here are
        read over: `logging.mdc.enabled` and `client.metrics.micrometer.bound`.

        Args:
            given: values by name.

        Raises:
            ConfigError: something is unknown, given twice, of the wrong type or out of bounds; the
                message has all of it.

        Example:
            >>> Properties.from_mapping({"decaton.partition.concurrency": "8"})
            Properties(partition_concurrency=8)
            >>> Properties.from_mapping({"commit": {"interval": {"ms": 100}}, "ignore_keys": ["a"]})
            Properties(ignore_keys=('a',), commit_interval_ms=100)
        """
        reading = read(cls.table(), given)
        if reading.problems:
            raise ConfigError(" ".join(problem.why for problem in reading.problems))
        return cls(**reading.values)

    def changed(self, **values: Any) -> Self:
        """A copy with some values changed, for a subscription that runs.

        Raises:
            ConfigError: as for the constructor, and for what cannot change while running.

        Example:
            >>> Properties(partition_concurrency=8).changed(processing_rate_per_partition=50)
            Properties(processing_rate_per_partition=50, partition_concurrency=8)
        """
        changed = type(self)(**{**self.as_given(), **values})
        for name in changed.refused_after(self):
            raise ConfigError(
                f"{name} cannot change while the subscription runs, from "
                f"{getattr(self, name)!r} to {getattr(changed, name)!r}. Close it, and start it "
                "anew."
            )
        return changed

    def refused_after(self, before: Properties) -> list[str]:
        """The names of the properties that could not change from `before` to this while running.

        Example:
            >>> Properties(commit_interval_ms=5).refused_after(Properties())
            []
        """
        fixed = {one.name for one in self.table() if one.applied is Applied.AT_START}
        return sorted(fixed & self.differing(before))

    def differing(self, other: Properties) -> frozenset[str]:
        """The names of the properties whose values are not the same.

        Example:
            >>> Properties(commit_interval_ms=5).differing(Properties(commit_interval_ms=6))
            frozenset({'commit_interval_ms'})
        """
        return frozenset(
            one.name for one in self.table() if getattr(self, one.name) != getattr(other, one.name)
        )

    def as_given(self) -> dict[str, Any]:
        """The values that were given, as opposed to left at their defaults, by name.

        Example:
            >>> Properties(commit_interval_ms=5).as_given()
            {'commit_interval_ms': 5}
        """
        return {one.name: getattr(self, one.name) for one in self.table() if one.name in self.given}

    @classmethod
    def _unknown(cls, name: str) -> ConfigError:
        for one in cls.table():
            if name.removeprefix(PREFIX) == one.dotted:
                return ConfigError(
                    f"{cls.__name__} has no argument {name!r}: write {one.name}=, or give "
                    "Decaton's names to from_mapping."
                )
        known = [one.name for one in cls.table()]
        return ConfigError(f"There is no property {name!r}.{did_you_mean(name, known)}")
