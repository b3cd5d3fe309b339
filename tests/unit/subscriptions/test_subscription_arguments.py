"""Arguments of a subscription, and combinations that are invalid."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import ConfigError
from millstream.parallel import (
    ProcessorSubscription,
    Properties,
    PropertiesFile,
    Retry,
    SubscriptionConfig,
)
from millstream.serdes import STRING

SECOND = timedelta(seconds=1)


def subscription(**arguments: Any) -> ProcessorSubscription:
    config = SubscriptionConfig("group", "unused:1")
    return ProcessorSubscription("sub", topics="e", processor=print, config=config, **arguments)


def retry(**arguments: Any) -> Retry:
    attempts: dict[str, Any] = {"max_attempts": 2} if "dead_letter_topic" in arguments else {}
    return Retry(backoff=SECOND, **arguments, **attempts)


@pytest.mark.parametrize(
    "arguments",
    [
        {"retry": retry(dead_letter_topic="e-retry")},
        {"retry": retry(dead_letter_topic="e")},
        {"retry": retry(topic="e")},
        {"shaping_topic": "e"},
        {"shaping_topic": "e-retry", "retry": retry()},
        {"shaping_topic": "dead", "retry": retry(dead_letter_topic="dead")},
        {"per_key_quota": 1, "retry": retry(topic="e-shaping")},
    ],
)
def test_topics_that_form_a_cycle_are_rejected(arguments: dict[str, Any]) -> None:
    """Also those with default names. Detects dead letters that are processed forever."""
    with pytest.raises(ConfigError, match="are both '"):
        subscription(**arguments)


def test_four_different_topics_are_accepted() -> None:
    subscription(shaping_topic="s", retry=retry(topic="r", dead_letter_topic="d"))


@pytest.mark.parametrize("name", ["key", "value"])
def test_serdes_are_checked(name: str) -> None:
    with pytest.raises(TypeError, match=f"needs a Serde as its {name}"):
        subscription(**{name: str})
    subscription(**{name: STRING})


def test_limits_are_properties() -> None:
    limited = subscription(rate_limit=50, per_key_quota=5)
    assert limited.properties == Properties(
        processing_rate_per_partition=50, per_key_quota_processing_rate=5
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"rate_limit": 5, "properties": Properties(processing_rate_per_partition=5)},
            "Pass only one",
        ),
        (
            {"per_key_quota": 5, "properties": Properties(per_key_quota_processing_rate=6)},
            "only one",
        ),
        ({"rate_limit": -2}, "processing_rate_per_partition"),
    ],
)
def test_invalid_limits_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        subscription(**arguments)


def test_retries_in_an_unreadable_format_are_rejected() -> None:
    """Their number and time would not be read: they would be processed at once, forever."""
    old = Properties(retry_task_in_legacy_format=True)
    with pytest.raises(ConfigError, match="needs legacy_parse_fallback_enabled as well"):
        subscription(properties=old, retry=retry())
    subscription(properties=old)
    both = subscription(properties=old.changed(legacy_parse_fallback_enabled=True), retry=retry())
    with pytest.raises(ConfigError, match="needs legacy_parse_fallback_enabled as well"):
        both.update_properties(legacy_parse_fallback_enabled=False)
    assert both.properties.legacy_parse_fallback_enabled


# --- properties that change ----------------------------------------------------------------------


class SubscriptionWithFile:
    """A subscription with a properties file.

    Args:
        path: the properties file.
        content: its initial content.
        arguments: the arguments of the subscription.
    """

    def __init__(self, path: Path, content: str, **arguments: Any) -> None:
        self._path = path
        path.write_text(content)
        self.subscription = subscription(properties_file=PropertiesFile(path), **arguments)

    def write(self, content: str) -> None:
        self._path.write_text(content)
        assert self.subscription._watcher is not None
        for _ in range(2):
            self.subscription._watcher.check()


def test_values_in_the_file_do_not_count_as_given_in_code(tmp_path: Path) -> None:
    """Detects a rate of 0 that stays after its line was removed because another property was
    updated meanwhile."""
    with_file = SubscriptionWithFile(
        tmp_path / "p.toml",
        "processing_rate_per_partition = 0",
        properties=Properties(partition_concurrency=5, max_pending_records=7),
    )
    update = with_file.subscription.update_properties
    updated = update(partition_concurrency=20)
    assert (updated.processing_rate_per_partition, updated.partition_concurrency) == (0, 20)
    update(processing_rate_per_partition=9)
    assert with_file.subscription.properties.processing_rate_per_partition == 0
    with_file.write("")
    assert with_file.subscription.properties == Properties(
        processing_rate_per_partition=9, partition_concurrency=20, max_pending_records=7
    )
    assert update(Properties()) == Properties()


@pytest.mark.parametrize("has_file", [False, True])
def test_quota_needs_a_shaping_topic_from_the_start(tmp_path: Path, *, has_file: bool) -> None:
    """Records above the quota would have no destination. Detects a quota that is in force without
    an effect."""
    file = {"properties_file": PropertiesFile(tmp_path / "p.toml")} if has_file else {}
    (tmp_path / "p.toml").write_text("")
    without_topic = subscription(**file)
    with pytest.raises(ConfigError, match="created without one"):
        without_topic.update_properties(per_key_quota_processing_rate=1)
    assert without_topic.properties == Properties()
    assert without_topic.update_properties(partition_concurrency=2) == Properties(
        partition_concurrency=2
    )
    shaping = subscription(shaping_topic="s", **file)
    assert shaping.update_properties(per_key_quota_processing_rate=1).given


def test_quota_in_the_file_needs_a_shaping_topic_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other properties of the file apply."""
    with_file = SubscriptionWithFile(tmp_path / "p.toml", "")
    with_file.write("partition_concurrency = 3\nper_key_quota_processing_rate = 1")
    assert with_file.subscription.properties.partition_concurrency == 3
    assert with_file.subscription.properties.per_key_quota_processing_rate == -1
    assert "created without one" in caplog.text
    started = SubscriptionWithFile(tmp_path / "p.toml", "per_key_quota_processing_rate = 1")
    started.write("per_key_quota_processing_rate = 2")
    assert started.subscription.properties.per_key_quota_processing_rate == 2
