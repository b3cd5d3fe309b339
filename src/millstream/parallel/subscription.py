"""`ProcessorSubscription`: a topic, a processor, and many tasks of a partition at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from millstream.app import KafkaStreams
from millstream.application.failures import ExceptionHandler
from millstream.errors import ConfigError
from millstream.metrics.values import Metrics
from millstream.parallel.checks import (
    check_batching,
    check_properties,
    check_topics,
    misfits,
    with_limits,
)
from millstream.parallel.config import SubscriptionConfig, checked_choice
from millstream.parallel.metrics import gathered
from millstream.parallel.subscription_topology import subscription_topology
from millstream.runtime.client_states import StateListener
from millstream.runtime.states import ClientState
from millstream.serdes import Serde
from millstream.server.address import ServerAddress
from millstream.subscriptions.plan import OnError, SubscriptionPlan
from millstream.subscriptions.processors import Chain, ProcessorLike
from millstream.subscriptions.properties.file import PropertiesFile
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.properties.watch import PropertiesWatch
from millstream.subscriptions.retry import Retry
from millstream.subscriptions.tasks.extraction import TaskExtractor, TaskReader
from millstream.subscriptions.tracing import Tracing
from millstream.topology.arguments import checked_serdes

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
        key: decodes keys for processors (`context.key`, and the bytes in `context.raw_key`); bytes
            by default.
        value: decodes tasks; bytes by default.
        extractor: makes tasks of records instead.
        properties: concurrency, bounds, rates; they may change while it runs.
        rate_limit: the property `processing_rate_per_partition`: tasks a second.
        per_key_quota: the property `per_key_quota_processing_rate`: tasks of a key a second.
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
            given up and all waiting is over; else they finish, but their results are ignored, as
            those of plain functions are.
        spark: a session, or None for one of its own.

    Raises:
        ConfigError: something cannot be, or does not fit together.
        TypeError: `key` or `value` is no serde.

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
        rate_limit: int | None = None,
        per_key_quota: int | None = None,
        properties_file: PropertiesFile | None = None,
        retry: Retry | None = None,
        on_error: OnError | None = None,
        shaping_topic: str | None = None,
        tracing: Tracing | None = None,
        cancel_running: bool = True,
        spark: SparkSession | None = None,
    ) -> None:
        checked_serdes("ProcessorSubscription", key=key, value=value)
        given = with_limits(properties or Properties(), rate_limit, per_key_quota)
        #: In code, as opposed to in the file.
        self._given = given
        self._watch: PropertiesWatch | None = None
        self._lock = threading.Lock()
        self._updating = threading.Lock()
        if properties_file is not None:
            self._watch = PropertiesWatch(
                properties_file, given, self._change, lambda new: misfits(new, **self._can)
            )
            given = self._watch.properties
        self._properties = given
        chosen: OnError = on_error or ("fail" if retry is None else "retry")
        checked_choice("on_error", chosen, _ERRORS)
        if chosen == "retry" and retry is None:
            raise ConfigError(
                "on_error='retry' needs a retry topic: give retry=Retry(backoff=...)."
            )
        chain = Chain.of(processor)
        check_batching(chain, given)
        plan = SubscriptionPlan(
            name=name,
            chain=chain,
            reader=TaskReader(value, extractor, given.legacy_parse_fallback_enabled),
            properties=given,
            retry=retry,
            on_error=chosen,
            key=key,
            tracing=tracing,
            cancel_running=cancel_running,
        )
        shapes = shaping_topic is not None or given.per_key_quota_processing_rate >= 0
        shaping = (shaping_topic or f"{topics}-shaping") if shapes else None
        check_topics(topics, retry, shaping)
        self._can = {"can_shape": shaping is not None, "can_retry": retry is not None}
        check_properties(given, **self._can)
        settings = config.streams.replace(commit_interval_ms=given.commit_interval_ms)
        self._name = name
        self._topic = topics
        self._streams = KafkaStreams(subscription_topology(plan, topics, shaping), settings, spark)
        self._streams._subscription = self

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
            Whether all closed by itself, and all tasks that were taken came to their ends, both in
            time. What is left is processed after the next start. The same each time it is called.
        """
        if self._watch is not None:
            self._watch.stop()
        closed = self._streams.close(_DEFAULT_CLOSE if timeout is None else timeout)
        return closed and self._streams._has_drained

    def run(self) -> None:
        """Start, wait for SIGINT or SIGTERM, and close; see `KafkaStreams.run`."""
        if self._watch is not None:
            self._watch.start()
        try:
            self._streams.run()
        finally:
            if self._watch is not None:
                self._watch.stop()

    def serve(
        self, host: str | None = None, port: int | None = None, token: str | None = None
    ) -> ServerAddress:
        """Answer HTTP: metadata, probes, the console, and changes of the properties.

        See `KafkaStreams.serve`, which has the arguments.

        Example:
            >>> subscription = ProcessorSubscription(
            ...     "mailer",
            ...     topics="emails",
            ...     processor=print,
            ...     config=SubscriptionConfig("mailer", "localhost:9092"),
            ... )
            >>> address = subscription.serve(port=0)
            >>> subscription.close()
            True
        """
        return self._streams.serve(host, port, token)

    def wait_for_state(self, state: ClientState | str, timeout: timedelta) -> None:
        """Wait until it is in a state; see `KafkaStreams.wait_for_state`."""
        self._streams.wait_for_state(state, timeout)

    def set_state_listener(self, listener: StateListener) -> None:
        """Call `listener(new, old)` at each change of state. Set it before `start`."""
        self._streams.set_state_listener(listener)

    def set_uncaught_exception_handler(self, handler: ExceptionHandler) -> None:
        """Decide what happens when a thread dies; see `KafkaStreams`."""
        self._streams.set_uncaught_exception_handler(handler)

    def metrics(self) -> Metrics:
        """What its threads reported last, by Decaton's names: see docs/build/subscriptions.md.

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
        return gathered(self._name, self._streams.metrics())

    def thread_metrics(self) -> Metrics:
        """Everything that its threads have told; see `KafkaStreams.metrics`."""
        return self._streams.metrics()

    def update_properties(self, properties: Properties | None = None, **values: Any) -> Properties:
        """Change what was given in code, while it runs; what a file has still wins over that.

        What is not named stays as it was given in code, and so comes into force again when the file
        has it no more. Another concurrency waits, partition by partition, until nothing is in
        flight, so that the order of keys is kept.

        Args:
            properties: all of them, in place of those given in code before.
            values: some of them.

        Returns:
            Those that hold now.

        Raises:
            ConfigError: a value cannot be, or cannot change while it runs, as a quota where there
                is no shaping topic; then all stays as it was.

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
        with self._updating:
            given = (properties or self._given).changed(**values)
            if self._watch is not None:
                self._watch.give(given)
            else:
                check_properties(given, **self._can)
                self._change(given)
            self._given = given
            return self._properties

    def _change(self, properties: Properties) -> None:
        with self._lock:
            self._properties = properties
            self._streams._change_properties(properties.as_given())
