"""Checks of the arguments of a subscription."""

from __future__ import annotations

from typing import Final

from millstream.errors import ConfigError
from millstream.subscriptions.batching.batching_processor import BatchingProcessor
from millstream.subscriptions.properties.subscription_properties import UNLIMITED, Properties
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.task_retry import Retry

_RATE: Final = "processing_rate_per_partition"
_QUOTA: Final = "per_key_quota_processing_rate"


def with_limits(
    properties: Properties, rate_limit: int | None, per_key_quota: int | None
) -> Properties:
    """Return the properties with the limits that were passed as separate arguments.

    Raises:
        ConfigError: a limit is passed in both ways, or is out of bounds.
    """
    limits = {}
    for argument, name, value in (
        ("rate_limit", _RATE, rate_limit),
        ("per_key_quota", _QUOTA, per_key_quota),
    ):
        if value is None:
            continue
        if name in properties.as_given():
            raise ConfigError(f"{argument}= and the property {name} are the same. Pass only one.")
        limits[name] = value
    return properties.changed(**limits)


def check_topics(topic: str, retry: Retry | None, shaping: str | None) -> None:
    """Raise a ConfigError if two topics of the subscription are the same."""
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
                f"{known[name]} and {role} are both {name!r}, so tasks would be sent to the topic "
                "they came from, endlessly. Use a separate topic for each of them."
            )
        known[name] = role


def property_conflicts(
    properties: Properties, *, can_shape: bool, can_retry: bool
) -> dict[str, str]:
    """Return the properties that conflict with the subscription.

    The result maps their names to explanations.
    """
    found: dict[str, str] = {}
    if properties.per_key_quota_processing_rate != UNLIMITED and not can_shape:
        found[_QUOTA] = (
            f"{_QUOTA} needs a topic for tasks above the quota, but the subscription was created "
            "without one. Create it with shaping_topic= or with a quota."
        )
    legacy, fallback = "retry_task_in_legacy_format", "legacy_parse_fallback_enabled"
    if can_retry and getattr(properties, legacy) and not getattr(properties, fallback):
        found[legacy] = found[fallback] = (
            f"{legacy} needs {fallback} as well: otherwise the subscription could read neither the "
            "retry count nor the scheduled time of its own retries."
        )
    return found


def check_properties(properties: Properties, *, can_shape: bool, can_retry: bool) -> None:
    """Raise a ConfigError if a property conflicts with the subscription."""
    for why in property_conflicts(properties, can_shape=can_shape, can_retry=can_retry).values():
        raise ConfigError(why)


def check_batching(chain: ProcessorChain, properties: Properties) -> None:
    """Raise a ConfigError if a `BatchingProcessor` is not used correctly.

    It must be the last processor, and `max_pending_records` must allow full batches.
    """
    for part in chain.parts:
        if not isinstance(part, BatchingProcessor):
            continue
        if part is not chain.parts[-1]:
            raise ConfigError(
                "A BatchingProcessor cannot push tasks to other processors: make it the last one."
            )
        if part.capacity > properties.max_pending_records:
            raise ConfigError(
                f"A BatchingProcessor waits for {part.capacity} tasks, but at most "
                f"max_pending_records={properties.max_pending_records} are taken: lower its "
                "capacity, or raise that property."
            )
