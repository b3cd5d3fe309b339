"""The settings of a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream.config.fields import did_you_mean
from millstream.config.streams_config import AT_LEAST_ONCE, StreamsConfig
from millstream.errors import ConfigError

#: Settings of `StreamsConfig` that a subscription sets itself.
_OWN: Final = ("application_id", "num_stream_threads", "commit_interval_ms")


class SubscriptionConfig:
    """The Kafka connection and the threads of a subscription. Immutable.

    Args:
        group_id: the consumer group. Instances with the same group share the partitions.
        bootstrap_servers: the initial brokers.
        num_threads: the number of consumers, each of which is a Spark task. Ranges, for
            autoscaling, are not supported.
        offset_reset: where to start without a committed offset: `"earliest"` or `"latest"`.
        settings: other settings of `StreamsConfig`: `consumer`, `producer` and `clients` for the
            Kafka clients, including security; handlers, and so on.

    Raises:
        ConfigError: a setting is unknown or invalid, or enables exactly-once or autoscaling.

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
                    f"SubscriptionConfig has no setting {name!r}: use group_id= for the group, "
                    "num_threads= for threads, and Properties(commit_interval_ms=...)."
                )
        _check_threads(num_threads)
        if settings.get("processing_guarantee", AT_LEAST_ONCE) != AT_LEAST_ONCE:
            raise ConfigError(
                "A subscription processes at-least-once: its processors have effects outside of "
                "Kafka that a transaction cannot include. Use map_async() of KafkaStreams for "
                "exactly-once."
            )
        self.offset_reset = offset_reset
        consumer: Mapping[str, Any] = settings.pop("consumer", None) or {}
        #: The equivalent `StreamsConfig`.
        self.streams: StreamsConfig = StreamsConfig(
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
        """The number of consumers."""
        return self.streams.least_stream_threads


def _check_threads(given: Any) -> None:
    """Raise a ConfigError if the number of threads is not a positive int.

    Ranges are rejected because autoscaling uses the load of threads, which means little for a
    subscription: its tasks mostly wait.
    """
    if isinstance(given, list | tuple):
        raise ConfigError(
            f"num_threads is {given!r}, but must be a number: subscriptions do not scale with "
            "load, because their tasks wait rather than compute. Set a fixed number of threads "
            "(partition_concurrency sets how many tasks of a partition run at the same time), or "
            "start and stop further instances with the same group_id."
        )
    if not isinstance(given, int) or isinstance(given, bool):
        raise ConfigError(f"num_threads is {given!r} ({type(given).__name__}), but must be an int.")
    if given < 1:
        raise ConfigError(f"num_threads is {given}, but must be at least 1.")


def checked_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    """Raise a ConfigError if the value is not one of the choices."""
    if value not in known:
        raise ConfigError(
            f"{name} must be one of {', '.join(map(repr, known))}, but is {value!r}."
            f"{did_you_mean(str(value), known)}"
        )
