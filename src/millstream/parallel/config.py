"""The settings of a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream.config import AT_LEAST_ONCE, StreamsConfig
from millstream.config_fields import did_you_mean
from millstream.errors import ConfigError

#: What a subscription decides itself, or has no use for.
_OWN: Final = ("application_id", "num_stream_threads", "commit_interval_ms")


class SubscriptionConfig:
    """How a subscription reaches Kafka, and how many threads it has. Frozen.

    Args:
        group_id: its consumer group. Instances with the same one share the partitions.
        bootstrap_servers: brokers to begin with.
        num_threads: consumers, each of them a Spark task. A number: threads that come and go by
            load, as those of an application can, are refused.
        offset_reset: where to begin without a committed offset: `"earliest"` or `"latest"`.
        settings: any other setting of `StreamsConfig`: `consumer`, `producer` and `clients` for the
            Kafka clients, security included; handlers, and so on.

    Raises:
        ConfigError: a setting is unknown, its value cannot be, or it asks for exactly-once or for
            threads that come and go.

    Example:
        >>> config = SubscriptionConfig(
        ...     group_id="mailer", bootstrap_servers="localhost:9092", num_threads=3
        ... )
        >>> config.group_id, config.num_threads
        ('mailer', 3)
    """

    def __init__(
        self,
        group_id: str,
        bootstrap_servers: Any,
        *,
        num_threads: int = 1,
        offset_reset: str = "earliest",
        **settings: Any,
    ) -> None:
        for name in _OWN:
            if name in settings:
                raise ConfigError(
                    f"SubscriptionConfig has no setting {name!r}: write group_id= for the group, "
                    "num_threads= for threads, and Properties(commit_interval_ms=...)."
                )
        _check_threads(num_threads)
        if settings.get("processing_guarantee", AT_LEAST_ONCE) != AT_LEAST_ONCE:
            raise ConfigError(
                "A subscription works at-least-once: what its processors do lies outside of Kafka, "
                "and no transaction holds it. map_async() of KafkaStreams works exactly-once."
            )
        self.offset_reset = offset_reset
        consumer: Mapping[str, Any] = settings.pop("consumer", None) or {}
        #: The same as the settings of an application.
        self.streams = StreamsConfig(
            application_id=group_id,
            bootstrap_servers=bootstrap_servers,
            num_stream_threads=num_threads,
            consumer={"auto.offset.reset": offset_reset, **consumer},
            **settings,
        )

    def __repr__(self) -> str:
        return f"<SubscriptionConfig {self.group_id!r} at {self.streams.bootstrap_servers}>"

    @property
    def group_id(self) -> str:
        """The consumer group."""
        return str(self.streams.application_id)

    @property
    def num_threads(self) -> int:
        """How many consumers."""
        return self.streams.least_stream_threads


def _check_threads(given: Any) -> None:
    """
    Raises:
        ConfigError: it is no number of threads. A subscription has no use for a range of them: what
            its threads wait for is not how busy they are.
    """
    if isinstance(given, list | tuple):
        raise ConfigError(
            f"num_threads is {given!r}, but must be a number: the threads of a subscription do not "
            "come and go by load, because its tasks wait rather than compute. Give as many as the "
            "topic's tasks need (partition_concurrency says how many of a partition run at a "
            "time), or start and stop further instances with the same group_id."
        )
    if not isinstance(given, int) or isinstance(given, bool):
        raise ConfigError(f"num_threads is {given!r} ({type(given).__name__}), but must be an int.")
    if given < 1:
        raise ConfigError(
            f"num_threads is {given}, but must be at least 1: without a thread nothing is done."
        )


def checked_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    """
    Raises:
        ConfigError: the value is none of these.
    """
    if value not in known:
        raise ConfigError(
            f"{name} must be one of {', '.join(map(repr, known))}, but is {value!r}."
            f"{did_you_mean(str(value), known)}"
        )
