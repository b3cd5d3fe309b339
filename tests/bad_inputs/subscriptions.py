"""Invalid settings and arguments of subscriptions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millstream.parallel
from bad_inputs.case import Case, Family, Raises
from millstream.errors import ConfigError

parallel: Any = millstream.parallel


def setting(id: str, description: str, settings: dict[str, Any], *parts: str) -> Case:
    """Create a case that fails when the settings are created."""
    return Case(id, description, lambda: _configured(settings), Raises(ConfigError, parts))


def argument(id: str, description: str, arguments: dict[str, Any], *parts: str) -> Case:
    """Create a case that fails when the subscription is created."""
    return Case(id, description, lambda: _subscribed(arguments), Raises(ConfigError, parts))


def _configured(settings: dict[str, Any]) -> Any:
    return parallel.SubscriptionConfig("group", "b:1", **settings)


def _subscribed(arguments: dict[str, Any]) -> None:
    given = {"topics": "in", "processor": print, **arguments}
    parallel.ProcessorSubscription("mailer", config=_configured({}), **given)


SUBSCRIPTIONS = Family(
    "Subscriptions",
    "Rejected when the `SubscriptionConfig` or the `ProcessorSubscription` is created.",
    [
        setting(
            "threads-range",
            "a range of threads",
            {"num_threads": (1, 4)},
            "num_threads is (1, 4), but must be a number",
            "subscriptions do not scale with load",
            "further instances with the same group_id",
        ),
        setting(
            "threads-range-of-one",
            "a range of threads with equal bounds",
            {"num_threads": [2, 2]},
            "num_threads is [2, 2], but must be a number",
        ),
        setting(
            "threads-zero", "zero threads", {"num_threads": 0}, "num_threads is 0", "at least 1"
        ),
        setting(
            "threads-text",
            "a number of threads as text",
            {"num_threads": "2"},
            "num_threads is '2' (str), but must be an int",
        ),
        setting(
            "threads-name",
            "the name of the setting for applications",
            {"num_stream_threads": 2},
            "no setting 'num_stream_threads'",
            "num_threads= for threads",
        ),
        setting(
            "exactly-once",
            "exactly-once",
            {"processing_guarantee": "exactly_once_v2"},
            "processes at-least-once",
            "map_async()",
        ),
        argument(
            "retry-without-topic",
            "`on_error='retry'` without a retry topic",
            {"on_error": "retry"},
            "needs a retry topic",
        ),
        argument(
            "no-choice",
            "an unknown value of `on_error`",
            {"on_error": "drop"},
            "on_error must be one of",
            "'drop'",
        ),
        argument(
            "circle",
            "a retry topic that is the source topic",
            {
                "topics": "in-retry",
                "retry": parallel.Retry(topic="in-retry", backoff=timedelta(seconds=1)),
            },
            "are both 'in-retry'",
        ),
        argument(
            "limit-twice",
            "a rate limit as an argument and as a property",
            {"rate_limit": 5, "properties": parallel.Properties(processing_rate_per_partition=5)},
            "are the same. Pass only one",
        ),
    ],
)
