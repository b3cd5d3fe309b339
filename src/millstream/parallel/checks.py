"""What of the arguments of a subscription does not fit together."""

from __future__ import annotations

from typing import Final

from millstream.errors import ConfigError
from millstream.subscriptions.gathering.batching_processor import BatchingProcessor
from millstream.subscriptions.processors import Chain
from millstream.subscriptions.properties.properties import UNLIMITED, Properties
from millstream.subscriptions.retry import Retry

_RATE: Final = "processing_rate_per_partition"
_QUOTA: Final = "per_key_quota_processing_rate"


def with_limits(
    properties: Properties, rate_limit: int | None, per_key_quota: int | None
) -> Properties:
    """Properties with limits that were given beside them.

    Raises:
        ConfigError: one is given there as well, or is out of bounds.
    """
    limits = {}
    for argument, name, value in (
        ("rate_limit", _RATE, rate_limit),
        ("per_key_quota", _QUOTA, per_key_quota),
    ):
        if value is None:
            continue
        if name in properties.as_given():
            raise ConfigError(f"{argument}= is the property {name}, which is given as well.")
        limits[name] = value
    return properties.changed(**limits)


def check_topics(topic: str, retry: Retry | None, shaping: str | None) -> None:
    """
    Raises:
        ConfigError: two of a subscription's topics are one.
    """
    names = {"topics": topic, "shaping_topic": shaping}
    if retry is not None:
        names["the retry topic"] = retry.topic_for(topic)
        names["dead_letter_topic"] = retry.dead_letter_topic
    known: dict[str, str] = {}
    for role, name in names.items():
        if name is None:
            continue
        if name in known:
            raise ConfigError(
                f"{known[name]} and {role} are both {name!r}: tasks would come back to where they "
                "were sent away from, again and again. Give each of them a topic of its own."
            )
        known[name] = role


def misfits(properties: Properties, *, can_shape: bool, can_retry: bool) -> dict[str, str]:
    """Which properties cannot be as they are, by name, and why.

    Args:
        properties: all of them.
        can_shape: whether there is a shaping topic.
        can_retry: whether there is a retry topic.
    """
    found: dict[str, str] = {}
    if properties.per_key_quota_processing_rate != UNLIMITED and not can_shape:
        found[_QUOTA] = (
            f"{_QUOTA} needs a topic for tasks above the quota, and the subscription was made "
            "without one: give it shaping_topic=, or a quota from the start."
        )
    legacy, fallback = "retry_task_in_legacy_format", "legacy_parse_fallback_enabled"
    if can_retry and getattr(properties, legacy) and not getattr(properties, fallback):
        found[legacy] = found[fallback] = (
            f"{legacy} needs {fallback} as well: the subscription reads its own retries, and would "
            "see neither how often they were tried nor when they are due."
        )
    return found


def check_properties(properties: Properties, *, can_shape: bool, can_retry: bool) -> None:
    """
    Raises:
        ConfigError: a property cannot be as it is.
    """
    for why in misfits(properties, can_shape=can_shape, can_retry=can_retry).values():
        raise ConfigError(why)


def check_batching(chain: Chain, properties: Properties) -> None:
    """
    Raises:
        ConfigError: a list of tasks can never be full, or nobody is called with it.
    """
    for part in chain.parts:
        if not isinstance(part, BatchingProcessor):
            continue
        if part is not chain.parts[-1]:
            raise ConfigError(
                "A BatchingProcessor pushes no tasks to other processors: let it be the last one."
            )
        if part.capacity > properties.max_pending_records:
            raise ConfigError(
                f"A BatchingProcessor waits for {part.capacity} tasks, but no more than "
                f"max_pending_records={properties.max_pending_records} are taken: lower its "
                "capacity, or raise that property."
            )
