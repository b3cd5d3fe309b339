"""Properties: their values, their names, and how they change."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from millstream.errors import ConfigError
from millstream.parallel import Properties
from millstream.subscriptions.properties.subscription_properties import Applied, declare

#: The defaults of Decaton 9.5's `ProcessorProperties`; "none" is -1 or the largest long there.
DECATON = {
    "ignore.keys": (),
    "processing.rate.per.partition": -1,
    "partition.concurrency": 1,
    "max.pending.records": 10_000,
    "commit.interval.ms": 1_000,
    "group.rebalance.timeout.ms": 1_000,
    "processing.shutdown.timeout.ms": 0,
    "deferred.complete.timeout.ms": -1,
    "processor.threads.termination.timeout.ms": None,
    "per.key.quota.processing.rate": -1,
    "retry.task.in.legacy.format": False,
    "legacy.parse.fallback.enabled": False,
    "shaping.topic.processing.rate.per.partition": {},
}
RATES = "shaping_topic_processing_rate_per_partition"


class WithFixedProperty(Properties):
    """Properties with one that cannot change while running."""

    units: int = declare("units", 4, Applied.AT_START, kind="int", least=1, doc="How many.")


def test_names_and_defaults_are_decatons() -> None:
    """Detects a property that is missing or has a different default."""
    assert {definition.dotted: definition.default for definition in Properties.table()} == DECATON


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"partition_concurrency": 0}, "partition_concurrency is 0, but must be at least 1"),
        ({"partition_concurrency": "8"}, "partition_concurrency is '8' .* must be an int"),
        ({"partition_concurrency": True}, "must be an int"),
        ({"partition_concurrency": None}, "must not be None"),
        ({"processing_rate_per_partition": -2}, "from -1 to 1000000"),
        ({"per_key_quota_processing_rate": 1_000_001}, "from -1 to 1000000"),
        ({"deferred_complete_timeout_ms": -2}, "at least -1"),
        ({"processor_termination_timeout_ms": -1}, "at least 0"),
        ({"legacy_parse_fallback_enabled": 1}, "must be True or False"),
        ({"ignore_keys": [b"key"]}, "ignore_keys"),
        ({RATES: 5}, "must be a dictionary of rates by topic"),
        ({RATES: {5: 5}}, "must be a dictionary of rates by topic"),
        ({RATES: {"slow": -2}}, r"partition\['slow'\] is -2, but must be from -1"),
        ({"partition_concurency": 8}, "Did you mean 'partition_concurrency'"),
        ({"partition.concurrency": 8}, "Use partition_concurrency="),
        ({"decaton.partition.concurrency": 8}, "Use partition_concurrency="),
    ],
)
def test_invalid_values_and_names_are_rejected(values: dict[str, Any], message: str) -> None:
    """The error contains the problem and the correct form."""
    with pytest.raises(ConfigError, match=message):
        Properties(**values)


def test_bounds_are_allowed() -> None:
    """The smallest and the largest values are valid."""
    lowest = Properties(processing_rate_per_partition=-1, commit_interval_ms=0)
    highest = Properties(processing_rate_per_partition=1_000_000)
    assert lowest.commit_interval_ms == 0
    assert highest.processing_rate_per_partition == 1_000_000


@pytest.mark.parametrize(
    "mapping",
    [
        {"partition_concurrency": 8, RATES: {"a.b": 5}},
        {"partition.concurrency": "8", f"{RATES}.a.b": " 5 "},
        {"decaton.partition.concurrency": 8, f"decaton.{RATES.replace('_', '.')}.a.b": 5},
        {"partition": {"concurrency": 8}, RATES.replace("_", "."): {"a": {"b": 5}}},
        {"decaton": {"partition_concurrency": 8, RATES: {"a": {"b": "5"}}}},
        {"partition_concurrency": 8, RATES: {"a.b": 5}, "commit_interval_ms": None},
        {
            "partition_concurrency": 8,
            RATES: {"a.b": 5},
            "decaton.logging.mdc.enabled": True,
            "client": {"metrics": {"micrometer": {"bound": True}}},
        },
    ],
)
def test_equivalent_notations(mapping: dict[str, Any]) -> None:
    """Our names, Decaton's with and without its prefix, tables, strings, and irrelevant entries."""
    expected = {"partition_concurrency": 8, RATES: {"a.b": 5}}
    assert Properties.from_mapping(mapping).as_given() == expected


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"partition.concurrency": 8, "partition_concurrency": 8}, "given more than once"),
        ({f"{RATES}.a": 5, f"decaton.{RATES}.a": 5}, "given more than once"),
        ({RATES: {}, f"decaton.{RATES}.a": 5}, "given more than once"),
        ({"partition": {"concurrency": {"a": 8}}}, "partition_concurrency is a table"),
        ({"partition_concurrency": "many"}, "partition.concurrency is 'many'"),
        ({"partition_concurrency": 8.0}, "must be an int"),
        ({"retry_task_in_legacy_format": "yes"}, "must be true or false"),
        ({f"{RATES}.a": "many"}, "must be a number"),
        ({"max.pending.record": 5}, "'max.pending.record'. Did you mean 'max.pending.records'"),
        ({"max": {"pending": {"record": 5}}}, "Did you mean 'max.pending.records'"),
        ({3: 5}, "no property '3'"),
    ],
)
def test_unreadable_properties_are_rejected(mapping: dict[Any, Any], message: str) -> None:
    """Each error contains the name as it was written."""
    with pytest.raises(ConfigError, match=message):
        Properties.from_mapping(mapping)


def test_all_mistakes_are_reported_together() -> None:
    """Otherwise a file would have to be corrected one error at a time."""
    with pytest.raises(
        ConfigError, match=r"partition_concurrency .*commit_interval_ms .*"
    ) as raised:
        Properties.from_mapping({"partition_concurrency": 0, "commit_interval_ms": -1, "x": 1})
    assert "no property 'x'" in raised.value.message


def test_change_is_checked_and_keeps_the_other_values() -> None:
    """The copy has the previous values and the new ones."""
    before = Properties(partition_concurrency=8, commit_interval_ms=5)
    after = before.changed(commit_interval_ms=6)
    assert after == Properties(partition_concurrency=8, commit_interval_ms=6)
    assert after.differing(before) == {"commit_interval_ms"}
    with pytest.raises(ConfigError, match="at least 0"):
        before.changed(commit_interval_ms=-1)
    with pytest.raises(ConfigError, match="Did you mean"):
        before.changed(commit_interval=1)


def test_fixed_property_cannot_change_while_running() -> None:
    """Unless its value stays the same, whether it was explicit or the default."""
    for before in (WithFixedProperty(), WithFixedProperty(units=4)):
        assert before.changed(units=4, commit_interval_ms=1).commit_interval_ms == 1
        with pytest.raises(ConfigError, match=r"units cannot change .* from 4 to 5"):
            before.changed(units=5)


def test_properties_can_be_pickled_and_are_read_only() -> None:
    """They are sent to workers."""
    properties = Properties.from_mapping({"ignore_keys": ["a"], RATES: {"slow": 1}})
    assert pickle.loads(pickle.dumps(properties)) == properties
    with pytest.raises(AttributeError):
        properties.commit_interval_ms = 5  # type: ignore[misc]
    Properties().shaping_topic_processing_rate_per_partition["slow"] = 1
    assert Properties().shaping_topic_processing_rate_per_partition == {}
