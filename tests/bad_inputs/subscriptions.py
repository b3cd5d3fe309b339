"""Settings and arguments of subscriptions that are wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millstream.parallel
from bad_inputs.case import Case, Family, Refused
from millstream.errors import ConfigError

parallel: Any = millstream.parallel


def setting(id: str, what: str, settings: dict[str, Any], *told: str) -> Case:
    """Looked at when the settings are made."""
    return Case(id, what, lambda: _configured(settings), Refused(ConfigError, told))


def argument(id: str, what: str, arguments: dict[str, Any], *told: str) -> Case:
    """Looked at when the subscription is made."""
    return Case(id, what, lambda: _subscribed(arguments), Refused(ConfigError, told))


def _configured(settings: dict[str, Any]) -> Any:
    return parallel.SubscriptionConfig("group", "b:1", **settings)


def _subscribed(arguments: dict[str, Any]) -> None:
    given = {"topics": "in", "processor": print, **arguments}
    parallel.ProcessorSubscription("mailer", config=_configured({}), **given)


SUBSCRIPTIONS = Family(
    "Subscriptions",
    "Refused when the `SubscriptionConfig` or the `ProcessorSubscription` is made.",
    [
        setting(
            "threads-range",
            "threads that come and go",
            {"num_threads": (1, 4)},
            "num_threads is (1, 4), but must be a number",
            "do not come and go by load",
            "further instances with the same group_id",
        ),
        setting(
            "threads-range-of-one",
            "a range of threads with one number in it",
            {"num_threads": [2, 2]},
            "num_threads is [2, 2], but must be a number",
        ),
        setting("threads-zero", "no threads", {"num_threads": 0}, "num_threads is 0", "at least 1"),
        setting(
            "threads-text",
            "a number of threads as text",
            {"num_threads": "2"},
            "num_threads is '2' (str), but must be an int",
        ),
        setting(
            "threads-name",
            "the name that an application has for threads",
            {"num_stream_threads": 2},
            "no setting 'num_stream_threads'",
            "num_threads= for threads",
        ),
        setting(
            "exactly-once",
            "exactly-once",
            {"processing_guarantee": "exactly_once_v2"},
            "works at-least-once",
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
            "an answer to errors that there is not",
            {"on_error": "drop"},
            "on_error must be one of",
            "'drop'",
        ),
        argument(
            "circle",
            "retries that go to the topic that is read",
            {
                "topics": "in-retry",
                "retry": parallel.Retry(topic="in-retry", backoff=timedelta(seconds=1)),
            },
            "are both 'in-retry'",
        ),
        argument(
            "limit-twice",
            "a rate limit as argument and as property",
            {"rate_limit": 5, "properties": parallel.Properties(processing_rate_per_partition=5)},
            "as well",
        ),
    ],
)
