"""The properties of a subscription."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Self

from millstream.config.fields import Setting, Settings, did_you_mean
from millstream.errors import ConfigError

#: The kind of a property that maps topics to rates.
RATES = "rates"


class Applied(Enum):
    """When a change of a property takes effect, in the words of the reference page."""

    IMMEDIATELY = "immediately"
    NEXT_TASKS = "for tasks that start later"
    NEXT_TIME = "on the next use"
    DRAINED = "per partition, when nothing is pending"
    AT_START = "not while running"


@dataclass
class Property(Setting):
    """A property: a `Setting` with Decaton's dotted name.

    `applied` states when a change takes effect. The kinds are those of `Setting`, and "rates": a
    mapping of topics to rates within the bounds.
    """

    applied: Applied = Applied.IMMEDIATELY

    def fresh_default(self) -> Any:
        return dict(self.default) if self.kind == RATES else super().fresh_default()

    def checked(self, value: Any) -> Any:
        return self._checked_rates(value) if self.kind == RATES else super().checked(value)

    def parsed(self, value: Any) -> Any:
        if self.kind != RATES or not isinstance(value, Mapping):
            return super().parsed(value)
        return {topic: self._rate_setting(topic).parsed(rate) for topic, rate in value.items()}

    def _checked_rates(self, value: Any) -> dict[str, int]:
        if not isinstance(value, Mapping) or not all(isinstance(topic, str) for topic in value):
            raise ConfigError(
                f"{self.name} is {value!r}, but must be a dictionary of rates by topic. {self.doc}"
            )
        return {topic: self._rate_setting(topic).checked(rate) for topic, rate in value.items()}

    def _rate_setting(self, topic: str) -> Setting:
        name = f"{self.name}[{topic!r}]"
        return Setting(name, 0, self.doc, "int", self.minimum, self.maximum, name=name)


def declare(
    dotted: str,
    default: Any,
    applied: Applied,
    *,
    doc: str,
    kind: str = "int",
    least: int | None = None,
    most: int | None = None,
) -> Any:
    """Declare one property."""
    return Property(dotted, default, doc, kind, least, most, applied=applied)


#: The optional prefix of Decaton's names.
PREFIX: Final = "decaton."

#: The properties of Decaton that have no meaning in Millstream, with the reason. They are ignored,
#: so that one file works for both.
IGNORED_PROPERTIES: Final[Mapping[str, str]] = {
    "logging.mdc.enabled": "Python's logging has no such context",
    "client.metrics.micrometer.bound": "there is no Micrometer",
}


class PropertyProblem(NamedTuple):
    """An invalid key. `name` is None if no property has this key."""

    name: str | None
    why: str


class ParsedProperties(NamedTuple):
    """Validated values by property, and the invalid keys."""

    values: dict[str, Any]
    problems: list[PropertyProblem]


def parse_properties(properties: Iterable[Property], given: Mapping[str, Any]) -> ParsedProperties:
    """Parse the values of `properties` in `given`.

    Names may be Millstream's (`partition_concurrency`) or Decaton's, with or without `decaton.`;
    nested tables are equivalent to dotted names. Numbers and booleans may be strings. None means
    not given. Never raises: each invalid key becomes a problem.
    """
    known = _PropertyNames(properties)
    values: dict[str, Any] = {}
    problems: list[PropertyProblem] = []
    for one, found in known.match(given, problems):
        try:
            values[one.name] = one.checked(one.parsed(_single_value(one, found)))
        except ConfigError as error:
            problems.append(PropertyProblem(one.name, error.message))
    return ParsedProperties(values, problems)


class _PropertyNames:
    def __init__(self, properties: Iterable[Property]) -> None:
        self._by_name = {name: one for one in properties for name in (one.name, one.dotted)}

    def match(
        self, given: Mapping[str, Any], problems: list[PropertyProblem]
    ) -> Iterator[tuple[Property, dict[str, Any]]]:
        """Yield each given property with its values as written."""
        found: dict[str, dict[str, Any]] = {}
        for written, value in _flatten(given, ""):
            key = written.removeprefix(PREFIX)
            if value is None or key in IGNORED_PROPERTIES:
                continue
            one = self._property(key)
            if one is None:
                near = did_you_mean(key, self._by_name)
                problems.append(PropertyProblem(None, f"There is no property {written!r}.{near}"))
            else:
                found.setdefault(one.name, {})[written] = value
        for name, values in found.items():
            yield self._by_name[name], values

    def _property(self, key: str) -> Property | None:
        """Return the property that has the key as its name or contains it in its table."""
        whole = self._by_name.get(key)
        if whole is not None:
            return whole
        return next(
            (one for name, one in self._by_name.items() if key.startswith(f"{name}.")), None
        )


def _single_value(one: Property, found: Mapping[str, Any]) -> Any:
    """Return the single value of a property.

    The rates of several topics are one value.

    Raises:
        ConfigError: the property is given more than once, or is a table but must not be.
    """
    inner = {
        _key_in_table(one, written.removeprefix(PREFIX)): value for written, value in found.items()
    }
    if len(inner) < len(found) or ("" in inner and len(inner) > 1):
        raise ConfigError(f"{one.name} is given more than once: {', '.join(map(repr, found))}.")
    if "" in inner:
        return inner[""]
    if one.kind != RATES:
        raise ConfigError(f"{one.name} is a table, but must be a single value. {one.doc}")
    return inner


def _key_in_table(one: Property, key: str) -> str:
    """Return the key within a property's table; empty for the property itself."""
    name = one.dotted if key.startswith(one.dotted) else one.name
    return key.removeprefix(name).removeprefix(".")


def _flatten(given: Mapping[Any, Any], before: str) -> Iterator[tuple[str, Any]]:
    """Flatten nested tables to dotted names. An empty table is a value."""
    for key, value in given.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


#: The value for no limit.
UNLIMITED: Final = -1
#: The maximum rate in tasks per second, as in Decaton.
RATE_MAX: Final = 1_000_000


class Properties(Settings):
    """The properties of a subscription. Immutable, compares by value.

    These are Decaton's properties in snake_case, except two that have no meaning in Millstream
    (see `from_mapping`). docs/build/subscriptions-properties.md lists them with types, defaults and
    bounds. Properties that end in `_ms` are whole milliseconds.
    All properties can be changed while the subscription runs, with
    `ProcessorSubscription.update_properties` or through a `PropertiesFile`.

    Raises:
        ConfigError: a property is unknown (the message suggests the closest name), has the wrong
            type or is out of bounds.

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

    ignore_keys: tuple[str, ...] = declare(
        "ignore.keys",
        (),
        Applied.IMMEDIATELY,
        kind="list",
        doc="Records with one of these keys (UTF-8) are completed without being processed, "
        "including in the retry topic. Records without a key are never ignored.",
    )
    processing_rate_per_partition: int = declare(
        "processing.rate.per.partition",
        UNLIMITED,
        Applied.IMMEDIATELY,
        least=UNLIMITED,
        most=RATE_MAX,
        doc="How many tasks of a partition may start per second; -1 means unlimited, 0 stops all. "
        "Partitions of the retry topic are limited separately.",
    )
    partition_concurrency: int = declare(
        "partition.concurrency",
        1,
        Applied.DRAINED,
        least=1,
        doc="How many tasks of a partition are processed concurrently. Tasks of the same key are "
        "always processed one after the other.",
    )
    max_pending_records: int = declare(
        "max.pending.records",
        10_000,
        Applied.IMMEDIATELY,
        least=1,
        doc="A partition is paused while this many of its records are uncompleted, or completed "
        "but behind an uncompleted one.",
    )
    commit_interval_ms: int = declare(
        "commit.interval.ms",
        1_000,
        Applied.NEXT_TIME,
        least=0,
        doc="How often offsets are committed.",
    )
    group_rebalance_timeout_ms: int = declare(
        "group.rebalance.timeout.ms",
        1_000,
        Applied.NEXT_TIME,
        least=0,
        doc="How long a rebalance waits for pending tasks before partitions are revoked. Tasks "
        "that are still pending are processed again by the next owner.",
    )
    processing_shutdown_timeout_ms: int = declare(
        "processing.shutdown.timeout.ms",
        0,
        Applied.NEXT_TIME,
        least=0,
        doc="How long closing waits for pending tasks. Tasks that are still pending are processed "
        "again after the next start.",
    )
    deferred_complete_timeout_ms: int = declare(
        "deferred.complete.timeout.ms",
        -1,
        Applied.NEXT_TASKS,
        least=-1,
        doc="How long a task may stay uncompleted after its processor has returned; -1 means "
        "unlimited.",
    )
    processor_termination_timeout_ms: int | None = declare(
        "processor.threads.termination.timeout.ms",
        None,
        Applied.NEXT_TIME,
        least=0,
        doc="How long to wait for the running tasks of a partition when it is revoked or closed; "
        "None waits without a limit.",
    )
    per_key_quota_processing_rate: int = declare(
        "per.key.quota.processing.rate",
        UNLIMITED,
        Applied.IMMEDIATELY,
        least=UNLIMITED,
        most=RATE_MAX,
        doc="How many tasks of a key and partition may arrive per second before further ones go to "
        "the shaping topic; -1 means unlimited. Also the rate of shaping topics that have no rate "
        "in `shaping_topic_processing_rate_per_partition`.",
    )
    retry_task_in_legacy_format: bool = declare(
        "retry.task.in.legacy.format",
        False,
        Applied.NEXT_TASKS,
        kind="bool",
        doc="Retries are written as `DecatonTaskRequest` without a `dt_meta` header, for consumers "
        "that use Decaton before 9.",
    )
    legacy_parse_fallback_enabled: bool = declare(
        "legacy.parse.fallback.enabled",
        False,
        Applied.NEXT_TASKS,
        kind="bool",
        doc="Records without a `dt_meta` header are read as `DecatonTaskRequest`, for producers "
        "that use Decaton before 9.",
    )
    shaping_topic_processing_rate_per_partition: dict[str, int] = declare(
        "shaping.topic.processing.rate.per.partition",
        {},
        Applied.IMMEDIATELY,
        kind=RATES,
        least=UNLIMITED,
        most=RATE_MAX,
        doc="Rates of shaping topics by name, like `processing_rate_per_partition`.",
    )

    @classmethod
    def table(cls) -> tuple[Property, ...]:
        """Return the properties in order of declaration, for the reference page.

        Example:
            >>> Properties.table()[2].name, Properties.table()[2].bounds()
            ('partition_concurrency', 'at least 1')
        """
        return tuple(one for one in cls.settings() if isinstance(one, Property))

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Create properties from a mapping with Millstream's or Decaton's names.

        The mapping may come from a file or another program: `decaton.` is optional, nested tables
        are equivalent to dotted names, numbers and booleans may be strings, and None means not
        given. Decaton's properties without a meaning in Millstream are ignored:
        `logging.mdc.enabled` and `client.metrics.micrometer.bound`.

        Raises:
            ConfigError: a property is unknown, given twice, has the wrong type or is out of bounds;
                the message lists all problems.

        Example:
            >>> Properties.from_mapping({"decaton.partition.concurrency": "8"})
            Properties(partition_concurrency=8)
            >>> Properties.from_mapping({"commit": {"interval": {"ms": 100}}, "ignore_keys": ["a"]})
            Properties(ignore_keys=('a',), commit_interval_ms=100)
        """
        reading = parse_properties(cls.table(), given)
        if reading.problems:
            raise ConfigError(" ".join(problem.why for problem in reading.problems))
        return cls(**reading.values)

    def changed(self, **values: Any) -> Self:
        """Return a copy with changed values, for a running subscription.

        Raises:
            ConfigError: as for the constructor, or a property cannot change while running.

        Example:
            >>> Properties(partition_concurrency=8).changed(processing_rate_per_partition=50)
            Properties(processing_rate_per_partition=50, partition_concurrency=8)
        """
        changed = type(self)(**{**self.as_given(), **values})
        for name in changed.refused_after(self):
            raise ConfigError(
                f"{name} cannot change while the subscription runs, from "
                f"{getattr(self, name)!r} to {getattr(changed, name)!r}. Restart the subscription."
            )
        return changed

    def refused_after(self, before: Properties) -> list[str]:
        """Return the names of changed properties that cannot change while running.

        Example:
            >>> Properties(commit_interval_ms=5).refused_after(Properties())
            []
        """
        fixed = {one.name for one in self.table() if one.applied is Applied.AT_START}
        return sorted(fixed & self.differing(before))

    def differing(self, other: Properties) -> frozenset[str]:
        """Return the names of the properties whose values differ.

        Example:
            >>> Properties(commit_interval_ms=5).differing(Properties(commit_interval_ms=6))
            frozenset({'commit_interval_ms'})
        """
        return frozenset(
            one.name for one in self.table() if getattr(self, one.name) != getattr(other, one.name)
        )

    def as_given(self) -> dict[str, Any]:
        """Return the values that were given, by name, without defaults.

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
                    f"{cls.__name__} has no argument {name!r}. Use {one.name}=, or pass "
                    "Decaton's names to from_mapping()."
                )
        known = [one.name for one in cls.table()]
        return ConfigError(f"There is no property {name!r}.{did_you_mean(name, known)}")
