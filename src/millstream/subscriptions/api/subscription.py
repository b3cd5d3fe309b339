"""`ProcessorSubscription`: concurrent processing of the tasks of a topic."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from millstream.app import KafkaStreams, attach_subscription
from millstream.application.failure_policy import ExceptionHandler
from millstream.errors import ConfigError
from millstream.metrics.values import Metric, Metrics
from millstream.runtime.loop.thread_meters import SUBSCRIPTION_GROUP
from millstream.runtime.states.client_states import StateListener
from millstream.runtime.states.thread_states import ClientState
from millstream.serdes import BYTES, Serde
from millstream.server.address import ServerAddress
from millstream.subscriptions.api.subscription_checks import (
    check_batching,
    check_properties,
    check_topics,
    property_conflicts,
    with_limits,
)
from millstream.subscriptions.api.subscription_config import SubscriptionConfig, checked_choice
from millstream.subscriptions.properties.properties_file import PropertiesFile
from millstream.subscriptions.properties.properties_watcher import PropertiesWatcher
from millstream.subscriptions.properties.subscription_properties import Properties
from millstream.subscriptions.subscription_plan import (
    OnError,
    Role,
    SubscriptionPart,
    SubscriptionPlan,
)
from millstream.subscriptions.task_processors import ProcessorChain, ProcessorLike
from millstream.subscriptions.task_retry import Retry
from millstream.subscriptions.tasks.task_extraction import TaskExtractor, TaskReader
from millstream.subscriptions.tracing import Tracing
from millstream.topology.argument_checks import check_serdes
from millstream.topology.call_site import call_site
from millstream.topology.operations.streams import Subscribe
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ERRORS: Final = ("fail", "skip", "retry")
_DEFAULT_CLOSE = timedelta(seconds=30)


class ProcessorSubscription:
    """Processes the tasks of a topic concurrently, but those of each key in order.

    The threads of a subscription are Spark tasks, like the stream threads of `KafkaStreams`. They
    share the partitions of the topic with the threads of all other instances in the same consumer
    group. Within a partition, many tasks run concurrently and complete in any order, and offsets
    are committed up to the first incomplete task, so each task is processed at least once.

    Semantics: LINE's Decaton 9.5, `ProcessorSubscription`; docs/differences.md lists the
    differences.

    Args:
        name: the name of the subscription, for logs, metrics and errors.
        topics: the topic to process.
        processor: a function of `(context, task)`, an `async def` function, a `TaskProcessor`
            class, or `Scoped(...)`; or a list of them, where each pushes tasks to the next one
            (`context.push(task)`).
        config: the connection to Kafka, the consumer group, and the number of threads.
        key: deserializes keys for processors (`context.key`; the bytes are in `context.raw_key`);
            bytes by default.
        value: deserializes tasks; bytes by default.
        extractor: extracts tasks from records instead of `value`.
        properties: concurrency, limits and timeouts; can be changed while the subscription runs.
        rate_limit: the property `processing_rate_per_partition`: tasks per second.
        per_key_quota: the property `per_key_quota_processing_rate`: tasks per key and second.
        properties_file: a file that overrides the properties, also while the subscription runs.
        retry: the retry topic and the retry policy.
        on_error: the handling of failed tasks and of unreadable records. `"fail"` stops the thread,
            and the next owner of the partition processes the task again; `"skip"` completes the
            task and logs the error, as Decaton does; `"retry"`, the default with a retry topic,
            sends the task to the retry topic. With `"retry"`, unreadable records go to the
            dead-letter topic; without such a topic, they are completed and logged.
        shaping_topic: the topic for tasks of keys above their quota; `<topic>-shaping` by default
            if there is a quota.
        tracing: creates a trace for each task.
        cancel_running: whether to cancel coroutines that are still running when their partition is
            released, after all timeouts; otherwise they finish, but their results are ignored.
            Plain functions always finish, and their results are ignored, too.
        spark: a Spark session; None creates one.

    Raises:
        ConfigError: an argument is invalid or conflicts with another one.
        TypeError: `key` or `value` is not a serde.

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
        check_serdes("ProcessorSubscription", key=key, value=value)
        given = with_limits(properties or Properties(), rate_limit, per_key_quota)
        #: The properties given in code, without those of the file.
        self._given = given
        self._watcher: PropertiesWatcher | None = None
        self._lock = threading.Lock()
        self._updating = threading.Lock()
        if properties_file is not None:
            self._watcher = PropertiesWatcher(
                properties_file,
                given,
                self._change,
                lambda new: property_conflicts(new, **self._capabilities),
            )
            given = self._watcher.properties
        self._properties = given
        chosen: OnError = on_error or ("fail" if retry is None else "retry")
        checked_choice("on_error", chosen, _ERRORS)
        if chosen == "retry" and retry is None:
            raise ConfigError(
                "on_error='retry' needs a retry topic: pass retry=Retry(backoff=...)."
            )
        chain = ProcessorChain.of(processor)
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
        self._capabilities = {"can_shape": shaping is not None, "can_retry": retry is not None}
        check_properties(given, **self._capabilities)
        settings = config.streams.replace(commit_interval_ms=given.commit_interval_ms)
        self._name = name
        self._topic = topics
        self._streams = KafkaStreams(subscription_topology(plan, topics, shaping), settings, spark)
        self._supervisor = attach_subscription(self._streams, self)

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
        """The state, as for `KafkaStreams.state`."""
        return self._streams.state

    @property
    def error(self) -> Any:
        """The error that stopped the subscription; None without one."""
        return self._streams.error

    @property
    def properties(self) -> Properties:
        """The current properties."""
        return self._properties

    def start(self) -> None:
        """Start the threads; see `KafkaStreams.start`."""
        self._streams.start()
        if self._watcher is not None:
            self._watcher.start()

    def close(self, timeout: timedelta | None = None) -> bool:
        """Stop taking tasks, wait for tasks in flight as configured, commit, and close.

        Args:
            timeout: the total time limit; 30 seconds by default.

        Returns:
            Whether all threads closed and all taken tasks completed in time. Uncompleted tasks are
            processed after the next start. Repeated calls return the same result.
        """
        if self._watcher is not None:
            self._watcher.stop()
        closed = self._streams.close(_DEFAULT_CLOSE if timeout is None else timeout)
        return closed and self._supervisor.has_drained

    def run(self) -> None:
        """Start, wait for SIGINT or SIGTERM, and close; see `KafkaStreams.run`."""
        if self._watcher is not None:
            self._watcher.start()
        try:
            self._streams.run()
        finally:
            if self._watcher is not None:
                self._watcher.stop()

    def serve(
        self, host: str | None = None, port: int | None = None, token: str | None = None
    ) -> ServerAddress:
        """Serve HTTP: metadata, probes, the console, and changes of the properties.

        See `KafkaStreams.serve` for the arguments.

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
        """Wait until the subscription is in a state; see `KafkaStreams.wait_for_state`."""
        self._streams.wait_for_state(state, timeout)

    def set_state_listener(self, listener: StateListener) -> None:
        """Call `listener(new, old)` on each change of state. Call this before `start`."""
        self._streams.set_state_listener(listener)

    def set_uncaught_exception_handler(self, handler: ExceptionHandler) -> None:
        """Set the handler for failed threads; see `KafkaStreams`."""
        self._streams.set_uncaught_exception_handler(handler)

    def metrics(self) -> Metrics:
        """Return the metrics last reported by the threads, under Decaton's names.

        docs/build/subscriptions.md lists them.

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
        return aggregate_metrics(self._name, self._streams.metrics())

    def thread_metrics(self) -> Metrics:
        """Return all metrics of the threads; see `KafkaStreams.metrics`."""
        return self._streams.metrics()

    def update_properties(self, properties: Properties | None = None, **values: Any) -> Properties:
        """Change the properties given in code while the subscription runs.

        Properties in a file still override them; a value given in code takes effect again once the
        file no longer contains it. Properties that are not named keep their values. A new
        concurrency takes effect per partition once nothing is in flight, so that the tasks of each
        key stay in order.

        Args:
            properties: replaces all properties given in code before.
            values: individual properties.

        Returns:
            The current properties.

        Raises:
            ConfigError: a value is invalid or cannot change while the subscription runs, such as a
                quota without a shaping topic. Nothing changes in this case.

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
            if self._watcher is not None:
                self._watcher.set_given(given)
            else:
                check_properties(given, **self._capabilities)
                self._change(given)
            self._given = given
            return self._properties

    def _change(self, properties: Properties) -> None:
        with self._lock:
            self._properties = properties
            self._supervisor.change_properties(properties.as_given())


def subscription_topology(plan: SubscriptionPlan, topic: str, shaping: str | None) -> Topology:
    """Build a topology with a sub-topology per topic.

    Each partition of these topics is therefore a task.
    """
    topology = Topology()
    _add_part(topology, plan, topic, "origin", topic, shaping)
    if plan.retry is not None:
        _add_part(topology, plan, plan.retry.topic_for(topic), "retry", topic, None)
    if shaping is not None:
        _add_part(topology, plan, shaping, "shaping", topic, None)
    return topology


def _add_part(
    topology: Topology,
    plan: SubscriptionPlan,
    topic: str,
    role: Role,
    origin: str,
    shaping: str | None,
) -> None:
    name = f"{plan.name}-{role}"
    source = f"{name}-source"
    topology.add_source(source, topic, key=BYTES, value=BYTES)
    retry = plan.retry
    sinks = {
        "retries": retry.topic_for(origin) if retry else None,
        "dead_letters": retry.dead_letter_topic if retry else None,
        "shaping": shaping,
    }
    nodes = {what: f"{name}-{what}" for what, to in sinks.items() if to is not None}
    topology._add_operation(
        name, Subscribe(SubscriptionPart(plan, topic, role, **nodes)), source, call_site()
    )
    for what, node in nodes.items():
        to = sinks[what]
        assert to is not None
        topology.add_sink(node, to, name, key=BYTES, value=BYTES)


def aggregate_metrics(subscription: str, metrics: Iterable[Metric]) -> Metrics:
    """Aggregate the metrics of all threads. Metrics of other groups are ignored."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for metric in metrics:
        if metric.group != SUBSCRIPTION_GROUP or isinstance(metric.value, str):
            continue
        name, value = metric.name, metric.value
        labels = tuple((label, of) for label, of in metric.labels.items() if label != "thread-id")
        before = found.get((name, labels))
        if before is None:
            found[name, labels] = value
        elif name.endswith((".max", "offset.last.committed", "offset.latest.consumed")):
            found[name, labels] = max(before, value)
        else:
            found[name, labels] = before + value
    return Metrics(
        Metric(name, {"subscription": subscription, **dict(labels)}, value, SUBSCRIPTION_GROUP)
        for (name, labels), value in found.items()
    )
