"""Options of `KTable.suppress`: how long to suppress, and how much to buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.topology.argument_checks import type_error
from millstream.topology.naming import checked_name


@dataclass(frozen=True, slots=True)
class BufferConfig:
    """The limits of the buffer of `KTable.suppress`, and its behavior when full.

    Kafka Streams' `Suppressed.BufferConfig`. A *strict* buffer never emits a change early: when it
    is full, the operation raises an error, which stops the application instance by default. An
    *eager* buffer emits its oldest changes when it is full.
    Configs are immutable; each method returns a new config.

    Attributes:
        record_limit: the maximum number of keys; None for no limit.
        byte_limit: the maximum size in bytes, computed as in Kafka Streams; None for no limit.
        emits_early: whether the buffer is eager.
        logging: whether the buffer has a changelog, from which it is restored.
        topic_config: the config of the changelog topic, with Kafka's names.

    Raises:
        ConfigError: a limit is negative.

    Example:
        >>> BufferConfig.max_records(1_000).with_max_bytes(1_000_000).emits_early
        True
        >>> BufferConfig.unbounded().emits_early
        False
    """

    record_limit: int | None = None
    byte_limit: int | None = None
    emits_early: bool = False
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for unit, limit in (("records", self.record_limit), ("bytes", self.byte_limit)):
            if limit is not None and (not isinstance(limit, int) or limit < 0):
                raise ConfigError(
                    f"A buffer cannot be limited to {limit!r} {unit}; the limit must be an integer "
                    "of at least 0."
                )

    @staticmethod
    def unbounded() -> BufferConfig:
        """Return a strict buffer without limits.

        Example:
            >>> final = Suppressed.until_window_closes(BufferConfig.unbounded())
        """
        return BufferConfig()

    @staticmethod
    def max_records(limit: int) -> BufferConfig:
        """Return an eager buffer with a maximum number of keys.

        Example:
            >>> buffer = BufferConfig.max_records(1_000)
            >>> buffer.record_limit, buffer.emits_early
            (1000, True)
        """
        return BufferConfig(record_limit=limit, emits_early=True)

    @staticmethod
    def max_bytes(limit: int) -> BufferConfig:
        """Return an eager buffer with a maximum size in bytes.

        Example:
            >>> BufferConfig.max_bytes(10 << 20).byte_limit
            10485760
        """
        return BufferConfig(byte_limit=limit, emits_early=True)

    def with_no_bound(self) -> BufferConfig:
        """Return a strict buffer without limits.

        Example:
            >>> BufferConfig.max_records(1_000).with_no_bound() == BufferConfig.unbounded()
            True
        """
        return replace(self, record_limit=None, byte_limit=None, emits_early=False)

    def with_max_records(self, limit: int) -> BufferConfig:
        """Return a copy with a different maximum number of keys.

        Example:
            >>> BufferConfig.max_bytes(10 << 20).with_max_records(1_000).record_limit
            1000
        """
        return replace(self, record_limit=limit)

    def with_max_bytes(self, limit: int) -> BufferConfig:
        """Return a copy with a different maximum size in bytes.

        Example:
            >>> BufferConfig.max_records(1_000).with_max_bytes(10 << 20).byte_limit
            10485760
        """
        return replace(self, byte_limit=limit)

    def emit_early_when_full(self) -> BufferConfig:
        """Return an eager buffer with the same limits.

        Example:
            >>> strict = BufferConfig.unbounded().with_max_records(1_000)
            >>> strict.emit_early_when_full() == BufferConfig.max_records(1_000)
            True
        """
        return replace(self, emits_early=True)

    def shut_down_when_full(self) -> BufferConfig:
        """Return a strict buffer with the same limits.

        The operation raises an error when the buffer is full.

        Example:
            >>> strict = BufferConfig.max_records(1_000).shut_down_when_full()
            >>> final = Suppressed.until_window_closes(strict)
        """
        return replace(self, emits_early=False)

    def with_logging_disabled(self) -> BufferConfig:
        """Return a copy without a changelog.

        Buffered changes are lost when the task closes.

        Example:
            >>> BufferConfig.unbounded().with_logging_disabled().logging
            False
        """
        return replace(self, logging=False, topic_config={})

    def with_logging_enabled(self, topic_config: Mapping[str, str]) -> BufferConfig:
        """Return a copy with a changelog.

        Args:
            topic_config: the config of the topic, with Kafka's names. It overrides the defaults.

        Example:
            >>> small = BufferConfig.unbounded().with_logging_enabled({"segment.bytes": "1048576"})
            >>> small.topic_config
            {'segment.bytes': '1048576'}
        """
        return replace(self, logging=True, topic_config=dict(topic_config))


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The options of `KTable.suppress` (Kafka Streams' `Suppressed`).

    Created by `until_window_closes` and `until_time_limit`.

    Attributes:
        limit_ms: how long to suppress changes, in milliseconds of stream time; None to wait until
            the window closes.
        buffer: the limits of the buffer.
        name: the name of the operation.

    Example:
        >>> builder = StreamsBuilder()
        >>> clicks = builder.stream("clicks", key=STRING, value=STRING).group_by_key()
        >>> per_minute = clicks.windowed_by(TimeWindows(timedelta(minutes=1))).count()
        >>> final = Suppressed.until_window_closes(BufferConfig.unbounded())
        >>> ended = per_minute.suppress(final).to_stream(lambda window, _: window.key)
        >>> ended.to("out", key=STRING)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     topic = driver.create_input_topic("clicks", key=STRING, value=STRING)
        ...     topic.pipe_key_values([("ann", "/"), ("ann", "/cart")], start_ms=0)
        ...     topic.pipe_input("ann", "/", 60_000)  # ends the first minute
        ...     driver.create_output_topic("out", key=STRING, value=LONG).read_key_values()
        [('ann', 2)]
    """

    limit_ms: int | None
    buffer: BufferConfig
    name: str | None = None

    @staticmethod
    def until_window_closes(buffer: BufferConfig, name: str | None = None) -> Suppressed:
        """Emit one final result for each window, after it has closed.

        A window closes when stream time passes its end by the grace period. The last windows are
        therefore only emitted when newer records arrive.

        Args:
            buffer: the limits of the buffer. It must be strict, since results that are emitted
                early are not final.
            name: the name of the operation; its store is named `<name>-store`.

        Raises:
            ConfigError: the buffer is eager.
            TopologyError: the name is not legal.

        Example:
            >>> final = Suppressed.until_window_closes(BufferConfig.unbounded())
        """
        _check_buffer("until_window_closes", buffer)
        if buffer.emits_early:
            raise ConfigError(
                "until_window_closes() emits final results only, so its buffer must not emit "
                "early. Use BufferConfig.unbounded(), or add .shut_down_when_full()."
            )
        return Suppressed(None, buffer, None if name is None else checked_name(name))

    @staticmethod
    def until_time_limit(
        limit: timedelta, buffer: BufferConfig, name: str | None = None
    ) -> Suppressed:
        """Emit at most one change for each key per time limit.

        The limit starts with the first suppressed change of a key. When stream time has advanced by
        `limit`, the latest change of the key is emitted.

        Args:
            limit: the time limit in stream time.
            buffer: the limits of the buffer.
            name: the name of the operation; its store is named `<name>-store`.

        Raises:
            ConfigError: the limit is negative.
            TopologyError: the name is not legal.

        Example:
            >>> calmer = Suppressed.until_time_limit(
            ...     timedelta(seconds=30), BufferConfig.max_records(10_000)
            ... )
        """
        limit_ms = milliseconds("until_time_limit()", "limit", limit)
        _check_buffer("until_time_limit", buffer)
        return Suppressed(limit_ms, buffer, None if name is None else checked_name(name))


def _check_buffer(method: str, buffer: object) -> None:
    if not isinstance(buffer, BufferConfig):
        raise type_error(
            f"{method}() takes a BufferConfig, for example BufferConfig.unbounded(), but got "
            f"{buffer!r}."
        )
