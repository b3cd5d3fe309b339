"""What a subscription takes, and what of it does not fit together."""

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
    buried: dict[str, Any] = {"max_attempts": 2} if "dead_letter_topic" in arguments else {}
    return Retry(backoff=SECOND, **arguments, **buried)


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
def test_topics_that_lead_back_to_each_other_are_refused(arguments: dict[str, Any]) -> None:
    """Also those with names by default: hunts for dead letters that are processed for ever."""
    with pytest.raises(ConfigError, match="are both '"):
        subscription(**arguments)


def test_four_topics_are_fine() -> None:
    subscription(shaping_topic="s", retry=retry(topic="r", dead_letter_topic="d"))


@pytest.mark.parametrize("name", ["key", "value"])
def test_what_is_no_serde_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"needs a Serde as its {name}"):
        subscription(**{name: str})
    subscription(**{name: STRING})


def test_limits_are_properties() -> None:
    limited = subscription(rate_limit=50, per_key_quota=5)
    assert limited.properties == Properties(
        processing_rate_per_partition=50, per_key_quota_processing_rate=5
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"rate_limit": 5, "properties": Properties(processing_rate_per_partition=5)}, "as well"),
        ({"per_key_quota": 5, "properties": Properties(per_key_quota_processing_rate=6)}, "well"),
        ({"rate_limit": -2}, "processing_rate_per_partition"),
    ],
)
def test_limits_that_cannot_be_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        subscription(**arguments)


def test_retries_that_the_subscription_could_not_read_itself_are_refused() -> None:
    """Neither their number nor their time would be seen: they would come at once, for ever."""
    old = Properties(retry_task_in_legacy_format=True)
    with pytest.raises(ConfigError, match="needs legacy_parse_fallback_enabled as well"):
        subscription(properties=old, retry=retry())
    subscription(properties=old)
    both = subscription(properties=old.changed(legacy_parse_fallback_enabled=True), retry=retry())
    with pytest.raises(ConfigError, match="needs legacy_parse_fallback_enabled as well"):
        both.update_properties(legacy_parse_fallback_enabled=False)
    assert both.properties.legacy_parse_fallback_enabled


# --- properties that change ----------------------------------------------------------------------


class Followed:
    """A subscription with a file of properties.

    Args:
        path: the file.
        content: of it, at first.
        arguments: of the subscription.
    """

    def __init__(self, path: Path, content: str, **arguments: Any) -> None:
        self._path = path
        path.write_text(content)
        self.subscription = subscription(properties_file=PropertiesFile(path), **arguments)

    def write(self, content: str) -> None:
        self._path.write_text(content)
        assert self.subscription._watch is not None
        for _ in range(2):
            self.subscription._watch.check()


def test_what_the_file_said_is_not_taken_for_given_in_code(tmp_path: Path) -> None:
    """Hunts for a rate of 0 that stays when its line is gone, since another property was updated
    meanwhile."""
    followed = Followed(
        tmp_path / "p.toml",
        "processing_rate_per_partition = 0",
        properties=Properties(partition_concurrency=5, max_pending_records=7),
    )
    update = followed.subscription.update_properties
    now = update(partition_concurrency=20)
    assert (now.processing_rate_per_partition, now.partition_concurrency) == (0, 20)
    update(processing_rate_per_partition=9)
    assert followed.subscription.properties.processing_rate_per_partition == 0
    followed.write("")
    assert followed.subscription.properties == Properties(
        processing_rate_per_partition=9, partition_concurrency=20, max_pending_records=7
    )
    assert update(Properties()) == Properties()


@pytest.mark.parametrize("has_file", [False, True])
def test_a_quota_needs_a_shaping_topic_from_the_start(tmp_path: Path, *, has_file: bool) -> None:
    """There would be no place for what is above it: hunts for one that is in force, and does
    nothing."""
    file = {"properties_file": PropertiesFile(tmp_path / "p.toml")} if has_file else {}
    (tmp_path / "p.toml").write_text("")
    without = subscription(**file)
    with pytest.raises(ConfigError, match="made without one"):
        without.update_properties(per_key_quota_processing_rate=1)
    assert without.properties == Properties()
    assert without.update_properties(partition_concurrency=2) == Properties(partition_concurrency=2)
    shaping = subscription(shaping_topic="s", **file)
    assert shaping.update_properties(per_key_quota_processing_rate=1).given


def test_a_quota_in_the_file_needs_a_shaping_topic_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of the file holds."""
    followed = Followed(tmp_path / "p.toml", "")
    followed.write("partition_concurrency = 3\nper_key_quota_processing_rate = 1")
    assert followed.subscription.properties.partition_concurrency == 3
    assert followed.subscription.properties.per_key_quota_processing_rate == -1
    assert "made without one" in caplog.text
    started = Followed(tmp_path / "p.toml", "per_key_quota_processing_rate = 1")
    started.write("per_key_quota_processing_rate = 2")
    assert started.subscription.properties.per_key_quota_processing_rate == 2
