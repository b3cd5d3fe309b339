"""The producer of tasks, like Decaton's `DecatonClient` in Java."""

from __future__ import annotations

import atexit
import copy
import logging
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from millstream.clock import Clock, Deadline, SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    IllegalStateError,
    ProductionError,
    SerializationError,
    StreamsError,
)
from millstream.kafka.clients.producer_errors import RAISED, delivery_error, reported_error
from millstream.kafka.clients.writer import BY_KEY
from millstream.kafka.librdkafka_errors import is_access_error, login_error
from millstream.kafka.settings.librdkafka_settings import (
    client_setting,
    create_client,
    librdkafka_settings,
)
from millstream.kafka.user_permissions import user_of
from millstream.record import UNKNOWN, Headers, Record
from millstream.serdes import Serde
from millstream.serdes._serde import format_value
from millstream.subscriptions.opentelemetry_tracing import require_opentelemetry, trace_headers
from millstream.subscriptions.tasks.decaton_metadata import (
    DecatonMetadata,
    request_bytes,
    with_metadata,
    without_metadata,
)

_FIRST_PRINTABLE: Final = 32
_LAST_PRINTABLE: Final = 126


def _serialize(topic: str, key: Any) -> bytes:
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise SerializationError(
            f"The key of a task must be a string, bytes or None, but is {format_value(key)}. For "
            "other keys, pass a serde to the TaskProducer, for example key=LONG.",
            topic=topic,
        )
    if not all(_FIRST_PRINTABLE <= ord(character) <= _LAST_PRINTABLE for character in key):
        raise SerializationError(
            f"The key {format_value(key)} has characters other than printable ASCII, which "
            "Decaton's client rejects. To write it as UTF-8 anyway, pass key=STRING to the "
            "TaskProducer.",
            topic=topic,
        )
    return key.encode("ascii")


def _deserialize(topic: str, data: bytes) -> Any:
    return data


#: Serializes strings of printable ASCII, like Decaton's `PrintableAsciiStringSerializer`. Bytes are
#: passed through.
TASK_KEY: Final[Serde[Any]] = Serde(_serialize, _deserialize, immutable=True, name="TASK_KEY")


_log = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_QUEUE_FULL_WAIT_MS: Final = 10
_REPORTS_TIMEOUT_S: Final = 1.0
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_CLOSE_TIMEOUT: Final = timedelta(seconds=60)


class PutResult(NamedTuple):
    """The topic, partition and offset of a written task: Decaton's `PutTaskResult`.

    Args:
        offset: the offset; -1 if the broker's response was lost and the retried record turned out
            to be already written.

    Example:
        >>> PutResult("mails", 0, 42).id
        'mails-0-42'
    """

    topic: str
    partition: int
    offset: int

    @property
    def id(self) -> str:
        """Topic, partition and offset as one string, in Decaton's format.

        Example:
            >>> PutResult("mails", 2, 7).id
            'mails-2-7'
        """
        return f"{self.topic}-{self.partition}-{self.offset}"


class TaskProducer:
    """Writes tasks in Decaton's format, for `ProcessorSubscription` and Decaton.

    Thread-safe; one producer per process is enough. A background thread handles the brokers'
    responses and runs the callbacks added with `add_done_callback`. Queued tasks take at most
    `buffer.memory`.

    Close the producer, or use it as a context manager. Otherwise, the program waits for unsent
    tasks only when it ends, for at most one minute.

    Args:
        topic: the topic to write to.
        application_id: the application that creates the tasks, for their metadata.
        bootstrap_servers: the cluster, as `host:port`, separated by commas or in a list.
        value: serializes the tasks.
        key: serializes the keys. By default, a key is bytes, None, or a string of printable ASCII,
            as in Decaton's client.
        instance_id: the instance that creates the tasks, for their metadata; by default the host
            name.
        settings: client settings under Kafka's dotted names: `security.protocol`, `linger.ms`, and
            so on. By default `acks` is `all`, and the producer is idempotent.
        old_format: whether to write the format of Decaton before version 9: a `DecatonTaskRequest`
            and no header.
        traces: whether OpenTelemetry's current context is added to the headers of each task, so
            that the processing of the task belongs to the same trace; requires the extra `otel`.
        clock: provides the creation time of tasks.

    Raises:
        ConfigError: a setting is unknown or unsupported, or OpenTelemetry is not installed.

    Example:
        >>> producer = TaskProducer(
        ...     "mails", application_id="shop", bootstrap_servers="localhost:9092", value=JSON
        ... )
        >>> with producer:  # closes the producer at the end
        ...     producer.put("alice", {"subject": "hello"}, partition="first")
        Traceback (most recent call last):
        ...
        TypeError: A partition must be an int of at least 0, or None, but is 'first'.
    """

    def __init__(
        self,
        topic: str,
        *,
        application_id: str,
        bootstrap_servers: str | list[str],
        value: Serde[Any],
        key: Serde[Any] | None = None,
        instance_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
        old_format: bool = False,
        traces: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._topic = topic
        self._application_id = application_id
        self._instance_id = socket.gethostname() if instance_id is None else instance_id
        self._key = key or TASK_KEY
        self._value = value
        self._old_format = old_format
        self._traces = traces
        if traces:
            require_opentelemetry()
        self._clock = clock or SystemClock()
        # Fail here, not at the first task, if the ids cannot be encoded.
        self._metadata(0, 0).to_bytes()
        config = _client_config(bootstrap_servers, settings or {})
        self._max_block_ms = int(client_setting(config, "producer", "max.block.ms"))
        self._settings = librdkafka_settings(config, "producer", f"{application_id}-task-producer")
        self._user = user_of(self._settings)
        #: The error of purged tasks.
        self._purge_error: StreamsError | None = None
        self._access_error: StreamsError | None = None
        self._close_lock = threading.Lock()
        #: Held during each `produce`, so that no task is added after the last flush.
        self._put_lock = threading.Lock()
        self._is_closed = False
        self._all_sent = True
        self._stopped = threading.Event()
        self._client = create_client(Producer, {**self._settings, "error_cb": self._on_error})
        self._thread = threading.Thread(
            target=self._poll_until_closed, name=f"task-producer-{topic}", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> TaskProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(
        self,
        key: Any,
        task: Any,
        *,
        timestamp_ms: int | None = None,
        scheduled_time_ms: int | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> Future[PutResult]:
        """Write a task without waiting for the brokers.

        Tasks for one partition are written in the order of the `put` calls. If the queue is full,
        the call blocks for up to `max.block.ms`.

        Args:
            key: tasks of the same key are processed in order, one after another; None for no order.
            task: the task; not None.
            timestamp_ms: the creation time in milliseconds since the epoch; by default now. The
                record's timestamp is always the current time.
            scheduled_time_ms: the time before which the task is not processed, in milliseconds
                since the epoch. Later tasks of its key wait as well; with Decaton, other keys may
                wait, too.
            partition: the target partition; by default chosen by key as Kafka's clients do.
            headers: headers of the record, in addition to `dt_meta`.

        Returns:
            A future of the written task's offset, completed when the required replicas have
            acknowledged the record. Errors are raised by its `result()`: a `ProductionError` for a
            task that is too large or could not be delivered in time, an `AccessDeniedError`, or a
            `BrokerUnavailableError` if the queue stayed full. The future cannot be canceled.

        Raises:
            SerializationError: the key or the task cannot be serialized.
            TypeError: the partition is not a partition number, or the headers are not pairs of str
                and bytes.
            IllegalStateError: the producer is closed.

        Example:
            >>> with TaskProducer(
            ...     "mails", application_id="shop", bootstrap_servers="localhost:1", value=STRING
            ... ) as producer:
            ...     producer.put("alice", None)
            Traceback (most recent call last):
            ...
            millstream.errors.SerializationError: None is not a task ... (topic mails)
        """
        if partition is not None and (type(partition) is not int or partition < 0):
            raise TypeError(
                f"A partition must be an int of at least 0, or None, but is {partition!r}."
            )
        key_bytes = self._key.serialize(self._topic, key)
        metadata = self._metadata(
            self._clock.now_ms() if timestamp_ms is None else timestamp_ms, scheduled_time_ms or 0
        )
        payload = self._payload(task)
        checked = Record(None, None, 0, headers).headers if headers else ()
        if self._traces:
            checked = (*checked, *trace_headers())
        if self._old_format:
            payload, written = request_bytes(metadata, payload), without_metadata(checked)
        else:
            written = with_metadata(checked, metadata)
        future: Future[PutResult] = Future()
        # A task cannot be canceled once librdkafka has it.
        future.set_running_or_notify_cancel()
        self._produce(key_bytes, payload, partition, written, future)
        return future

    def flush(self, timeout: timedelta | None = None) -> bool:
        """Wait until every task is acknowledged or has failed.

        Errors are raised by the futures.

        Args:
            timeout: how long to wait; None waits without a limit, in practice up to
                `delivery.timeout.ms`.

        Returns:
            Whether no task is in flight.

        Raises:
            IllegalStateError: called from a callback of a future.

        Example:
            >>> with TaskProducer(
            ...     "mails", application_id="shop", bootstrap_servers="localhost:1", value=STRING
            ... ) as producer:
            ...     producer.flush(timedelta(seconds=5))
            True
        """
        self._check_not_in_callback("flush()")
        with self._put_lock:
            if self._is_closed:
                return self._all_sent
            client = self._client
        return not _flush(client, -1 if timeout is None else timeout.total_seconds())

    def close(self, timeout: timedelta = _CLOSE_TIMEOUT) -> bool:
        """Wait until every task is acknowledged or has failed, and close the producer.

        Args:
            timeout: how long to wait. The futures of tasks that are unacknowledged by then fail,
                and a log line contains their number.

        Returns:
            Whether all tasks were acknowledged or failed in time. Repeated calls return the same
            result.

        Raises:
            IllegalStateError: called from a callback of a future.

        Example:
            >>> producer = TaskProducer(
            ...     "mails", application_id="shop", bootstrap_servers="localhost:1", value=STRING
            ... )
            >>> producer.close()
            True
        """
        self._check_not_in_callback("close()")
        with self._close_lock:
            if self._is_closed:
                return self._all_sent
            with self._put_lock:
                self._is_closed = True
            atexit.unregister(self.close)
            left = _flush(self._client, timeout.total_seconds())
            self._all_sent = not left
            if left:
                self._purge(left, timeout)
            self._stopped.set()
            self._thread.join()
            # Dropping the last reference closes the connections of the client immediately.
            del self._client
        return self._all_sent

    def _purge(self, left: int, timeout: timedelta) -> None:
        _log.warning(
            "The task producer of topic %s was closed with %d tasks that were not acknowledged "
            "within %s; their futures fail",
            self._topic,
            left,
            timeout,
        )
        self._purge_error = ProductionError(
            f"The task was not acknowledged within {timeout} before the producer was closed. It "
            "may have been written nevertheless. Check that the brokers are reachable, or pass a "
            "longer timeout to close().",
            topic=self._topic,
        )
        self._client.purge()
        _flush(self._client, _REPORTS_TIMEOUT_S)

    def _metadata(self, timestamp_ms: int, scheduled_time_ms: int) -> DecatonMetadata:
        return DecatonMetadata(
            timestamp_ms,
            self._application_id,
            self._instance_id,
            scheduled_time_ms=scheduled_time_ms,
        )

    def _payload(self, task: Any) -> bytes:
        payload = self._value.serialize(self._topic, task)
        if payload is None:
            value = (
                "None"
                if task is None
                else f"{format_value(task)}, which {self._value} writes as None,"
            )
            raise SerializationError(
                f"{value} is not a task and would not be processed.", topic=self._topic
            )
        return payload

    def _produce(
        self,
        key: bytes | None,
        payload: bytes,
        partition: int | None,
        headers: Headers,
        future: Future[PutResult],
    ) -> None:
        on_delivery = partial(self._delivered, future)
        target = BY_KEY if partition is None else partition
        # The annotation of `produce` requires a list with a wider element type.
        given: list[Any] = list(headers)
        deadline = Deadline(self._clock, self._max_block_ms)
        while True:
            try:
                with self._put_lock:
                    if self._is_closed:
                        raise IllegalStateError("The task producer is closed.", topic=self._topic)
                    self._client.produce(
                        self._topic, payload, key, target, on_delivery, headers=given
                    )
                return
            except BufferError:
                if deadline.passed:
                    future.set_exception(self._queue_full_error())
                    return
                self._make_room()
            except RAISED as error:
                self._fail(future, reported_error(error), partition)
                return

    def _make_room(self) -> None:
        if threading.current_thread() is self._thread:
            # A callback called put(), and no other thread polls for responses.
            self._poll(_QUEUE_FULL_WAIT_MS / 1_000)
        else:
            self._clock.sleep_ms(_QUEUE_FULL_WAIT_MS)

    def _queue_full_error(self) -> StreamsError:
        return BrokerUnavailableError(
            f"The producer's queue has been full for max.block.ms ({self._max_block_ms} ms): the "
            "brokers accept tasks more slowly than they are written, or cannot be reached. Check "
            "the brokers, write fewer tasks, or raise buffer.memory or max.block.ms.",
            topic=self._topic,
        )

    def _poll_until_closed(self) -> None:
        """Poll for the brokers' responses until the producer is closed."""
        while not self._stopped.is_set():
            self._poll(_POLL_S)
            if self._access_error is not None:
                # Without a purge, each task would fail only after delivery.timeout.ms, without the
                # cause.
                self._purge_error, self._access_error = self._access_error, None
                self._client.purge()

    def _poll(self, timeout_s: float) -> None:
        try:
            self._client.poll(timeout_s)
        except RAISED as error:
            _log.warning(
                "The task producer encountered a fatal error: %s", reported_error(error).str()
            )

    def _on_error(self, error: KafkaError) -> None:
        # All errors are logged by the client itself.
        if is_access_error(error):
            self._access_error = login_error(error, self._settings)

    def _delivered(
        self, future: Future[PutResult], error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self._fail(future, error, message.partition())
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        future.set_result(PutResult(self._topic, partition, UNKNOWN if offset is None else offset))

    def _fail(self, future: Future[PutResult], error: KafkaError, partition: int | None) -> None:
        known = None if partition is None or partition < 0 else partition
        if self._purge_error is not None and error.code() in _PURGED:
            # A separate error per task, so that each has its own traceback.
            future.set_exception(copy.copy(self._purge_error))
        else:
            future.set_exception(delivery_error(error, self._topic, known, user=self._user))

    def _check_not_in_callback(self, what: str) -> None:
        if threading.current_thread() is self._thread:
            raise IllegalStateError(
                f"{what} would deadlock in a callback of a future. Call it on another thread.",
                topic=self._topic,
            )


def _flush(client: Producer, timeout_s: float) -> int:
    """Wait for the tasks in flight. Returns how many are left after the timeout."""
    try:
        return client.flush(timeout_s)
    except RAISED as error:
        # The queued tasks fail individually.
        _log.warning("The task producer encountered a fatal error: %s", reported_error(error).str())
        return len(client)


def _client_config(
    bootstrap_servers: str | list[str], settings: Mapping[str, Any]
) -> StreamsConfig:
    """Build a config, which parses and checks the client settings."""
    if "transactional.id" in settings:
        raise ConfigError("A task producer does not use transactions: remove transactional.id.")
    # This application ID is not used for a group, topic or directory.
    return StreamsConfig(
        application_id="task-producer", bootstrap_servers=bootstrap_servers, producer=settings
    )
