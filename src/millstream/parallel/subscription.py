"""`ProcessorSubscription`: a topic, a processor, and many tasks of a partition at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from millstream.app import KafkaStreams
from millstream.app_failures import ExceptionHandler
from millstream.errors import ConfigError
from millstream.parallel.config import SubscriptionConfig, checked_choice
from millstream.parallel.metrics import SubscriptionMetrics, gathered
from millstream.parallel.subscription_topology import subscription_topology
from millstream.runtime.client_states import StateListener
from millstream.runtime.states import ClientState
from millstream.serdes import Serde
from millstream.subscriptions.gathering.batching_processor import BatchingProcessor
from millstream.subscriptions.plan import OnError, SubscriptionPlan
from millstream.subscriptions.processors import Chain, ProcessorLike
from millstream.subscriptions.properties.file import PropertiesFile
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.properties.watch import PropertiesWatch
from millstream.subscriptions.retry import Retry
from millstream.subscriptions.tasks.extraction import TaskExtractor, TaskReader
from millstream.subscriptions.tracing import Tracing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ERRORS: Final = ("fail", "skip", "retry")
_DEFAULT_CLOSE = timedelta(seconds=30)


class ProcessorSubscription:
    """Processes the tasks of a topic, many of each partition at a time, those of a key in order.

    Its threads are Spark tasks, as the stream threads of `KafkaStreams` are: they share the
    partitions of the topic in one consumer group with all other instances. Within a partition,
    tasks complete in any order, and offsets are committed up to the first that is not complete:
    a task is processed at least once.

    Semantics: LINE's Decaton 9.5, `ProcessorSubscription`; docs/differences.md has what is done
    otherwise.

    Args:
        name: of the subscription, for logs, metrics and errors.
        topics: the topic.
        processor: a function of `(context, task)`, an `async def` one, a `TaskProcessor` class, or
            `Scoped(...)`; or a list of them, each of which pushes tasks to the next one
            (`context.push(task)`).
        config: how it reaches Kafka.
        key: unused by tasks, whose context has the bytes of the key; checked to be a serde.
        value: decodes tasks; bytes by default.
        extractor: makes tasks of records instead.
        properties: concurrency, bounds, rates; they may change while it runs.
        properties_file: a file whose properties win, also while it runs.
        retry: where and when tasks are tried again.
        on_error: what becomes of a task whose processor raises, and of a record that holds none:
            `"fail"` stops the thread, and the task is done again by whoever is next; `"skip"`
            completes it with a line in the log, as Decaton does; `"retry"` sends it to the retry
            topic, which is the default where there is one. A record that holds no task goes to the
            dead-letter topic then, or is completed with a line in the log if there is none.
        shaping_topic: where tasks of keys go that are above their quota; `<topic>-shaping` by
            default, where there is a quota.
        tracing: is told of each task.
        cancel_running: whether coroutines are cancelled that still run when their partition is
            given up and all waiting is over; else they come to their ends, which count for
            nothing, as those of plain functions do.
        spark: a session, or None for one of its own.

    Raises:
        ConfigError: something cannot be, or does not fit together.

    Example:
        >>> def send(context, task):
        ...     print("to", task)
        >>> subscription = ProcessorSubscription(
        ...     "mailer",
        ...     topics="emails",
        ...     processor=send,
        ...     value=STRING,
        ...     config=SubscriptionConfig("mailer", "localhost:9092"),
        ...     properties=Properties(partition_concurrency=20),
        ... )
        >>> subscription.state.name
        'CREATED'
    """

    def __init__(
        self,
        name: str,
        *,
        topics: str,
        processor: ProcessorLike | Sequence[ProcessorLike],
        config: SubscriptionConfig,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        extractor: TaskExtractor | None = None,
        properties: Properties | None = None,
        properties_file: PropertiesFile | None = None,
        retry: Retry | None = None,
        on_error: OnError | None = None,
        shaping_topic: str | None = None,
        tracing: Tracing | None = None,
        cancel_running: bool = True,
        spark: SparkSession | None = None,
    ) -> None:
        given = properties or Properties()
        self._watch: PropertiesWatch | None = None
        self._lock = threading.Lock()
        if properties_file is not None:
            self._watch = PropertiesWatch(properties_file, given, self._change)
            given = self._watch.properties
        self._properties = given
        chosen: OnError = on_error or ("fail" if retry is None else "retry")
        checked_choice("on_error", chosen, _ERRORS)
        if chosen == "retry" and retry is None:
            raise ConfigError(
                "on_error='retry' needs a retry topic: give retry=Retry(backoff=...)."
            )
        chain = Chain.of(processor)
        _check_batching(chain, given)
        plan = SubscriptionPlan(
            name=name,
            chain=chain,
            reader=TaskReader(value, extractor, given.legacy_parse_fallback_enabled),
            properties=given,
            retry=retry,
            on_error=chosen,
            tracing=tracing,
            cancel_running=cancel_running,
        )
        shapes = shaping_topic is not None or given.per_key_quota_processing_rate >= 0
        shaping = (shaping_topic or f"{topics}-shaping") if shapes else None
        settings = config.streams.replace(commit_interval_ms=given.commit_interval_ms)
        self._name = name
        self._streams = KafkaStreams(subscription_topology(plan, topics, shaping), settings, spark)

    def __repr__(self) -> str:
        return f"<ProcessorSubscription {self._name!r}: {self.state.name}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def state(self) -> ClientState:
        """Where it is, as `KafkaStreams.state`."""
        return self._streams.state

    @property
    def error(self) -> Any:
        """What it ended with; None if it did not."""
        return self._streams.error

    @property
    def properties(self) -> Properties:
        """Those of now."""
        return self._properties

    def start(self) -> None:
        """Start the threads; see `KafkaStreams.start`."""
        self._streams.start()
        if self._watch is not None:
            self._watch.start()

    def close(self, timeout: timedelta | None = None) -> bool:
        """Stop taking tasks, wait for those in flight as the properties say, commit, and end.

        Args:
            timeout: how long all of it may take; 30 seconds by default.

        Returns:
            Whether everything closed by itself, in time.
        """
        if self._watch is not None:
            self._watch.stop()
        return self._streams.close(_DEFAULT_CLOSE if timeout is None else timeout)

    def run(self) -> None:
        """Start, wait for SIGINT or SIGTERM, and close; see `KafkaStreams.run`."""
        if self._watch is not None:
            self._watch.start()
        try:
            self._streams.run()
        finally:
            if self._watch is not None:
                self._watch.stop()

    def wait_for_state(self, state: ClientState | str, timeout: timedelta) -> None:
        """Wait until it is in a state; see `KafkaStreams.wait_for_state`."""
        self._streams.wait_for_state(state, timeout)

    def set_state_listener(self, listener: StateListener) -> None:
        """Call `listener(new, old)` at each change of state. Set it before `start`."""
        self._streams.set_state_listener(listener)

    def set_uncaught_exception_handler(self, handler: ExceptionHandler) -> None:
        """Decide what happens when a thread dies; see `KafkaStreams`."""
        self._streams.set_uncaught_exception_handler(handler)

    def metrics(self) -> SubscriptionMetrics:
        """What its threads reported last, by Decaton's names; docs/subscriptions.md has them all.

        Example:
            >>> subscription = ProcessorSubscription(
            ...     "mailer",
            ...     topics="emails",
            ...     processor=print,
            ...     config=SubscriptionConfig("mailer", "localhost:9092"),
            ... )
            >>> subscription.metrics().total("tasks.processed")
            0.0
        """
        return gathered(self._name, self._streams.metrics().values())

    def thread_metrics(self) -> Mapping[str, Mapping[str, Any]]:
        """By thread what it has done; see `KafkaStreams.metrics`."""
        return self._streams.metrics()

    def update_properties(self, properties: Properties | None = None, **values: Any) -> Properties:
        """Change properties while it runs; those of a file still win.

        Another concurrency waits, partition by partition, until nothing is in flight, so that the
        order of keys is kept.

        Args:
            properties: all of them, in place of those given before.
            values: some of them.

        Returns:
            Those that hold now.

        Raises:
            ConfigError: a value cannot be, or cannot change while it runs.

        Example:
            >>> subscription = ProcessorSubscription(
            ...     "mailer",
            ...     topics="emails",
            ...     processor=print,
            ...     config=SubscriptionConfig("mailer", "localhost:9092"),
            ... )
            >>> subscription.update_properties(processing_rate_per_partition=50)
            Properties(processing_rate_per_partition=50)
        """
        new = (properties or self._properties).changed(**values)
        if self._watch is not None:
            self._watch.give(new)
            return self._properties
        self._change(new)
        return new

    def _change(self, properties: Properties) -> None:
        with self._lock:
            self._properties = properties
            self._streams._change_properties(properties.as_given())


def _check_batching(chain: Chain, properties: Properties) -> None:
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
