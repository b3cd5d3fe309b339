"""The producer of tasks: what Decaton's `DecatonClient` is in Java."""

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
from millstream.config import StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    IllegalStateError,
    ProductionError,
    SerializationError,
    StreamsError,
)
from millstream.kafka.data.outgoing_records import BY_KEY
from millstream.kafka.data.producer_errors import RAISED, delivery_error, reported_error
from millstream.kafka.librdkafka_errors import is_access_error, login_error
from millstream.kafka.rights import user_of
from millstream.kafka.settings.clients import client_setting, create_client, librdkafka_settings
from millstream.record import UNKNOWN, Headers, Record
from millstream.serdes import Serde
from millstream.serdes._serde import shown
from millstream.subscriptions.tasks.keys import TASK_KEY
from millstream.subscriptions.tasks.metadata import (
    DecatonMetadata,
    request_bytes,
    with_metadata,
    without_metadata,
)
from millstream.subscriptions.trace_headers import require_opentelemetry, trace_headers

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_QUEUE_FULL_WAIT_MS: Final = 10
_REPORTS_TIMEOUT_S: Final = 1.0
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_CLOSE: Final = timedelta(seconds=60)


class PutResult(NamedTuple):
    """Where a task was written: Decaton's `PutTaskResult`.

    Args:
        topic: the topic.
        partition: of that topic.
        offset: in that partition; -1 if the broker's answer was lost, and the repeated record was
            found to be there already.

    Example:
        >>> PutResult("mails", 0, 42).id
        'mails-0-42'
    """

    topic: str
    partition: int
    offset: int

    @property
    def id(self) -> str:
        """The place as one text, as Decaton writes it.

        Example:
            >>> PutResult("mails", 2, 7).id
            'mails-2-7'
        """
        return f"{self.topic}-{self.partition}-{self.offset}"


class TaskProducer:
    """Writes tasks in Decaton's format: what a `ProcessorSubscription` reads, and Decaton's own.

    All threads of a process can share one. A thread of its own hears of the brokers' answers, and
    runs what `add_done_callback` adds to the futures. Waiting tasks take `buffer.memory` at most.

    Close it, or use it as a context manager: what is not sent yet when the program ends is waited
    for only then, for a minute at most.

    Args:
        topic: where tasks go.
        application_id: the application that makes them, for the tasks' metadata.
        bootstrap_servers: of the cluster, as `host:port`, separated by commas or in a list.
        value: writes the tasks.
        key: writes their keys. Without it a key is bytes, None, or text of printable ASCII, as
            Decaton's own client wants it.
        instance_id: which instance makes them, for the tasks' metadata; by default the host's name.
        settings: of the client, under Kafka's dotted names: `security.protocol`, `linger.ms`, and
            so on. By default `acks` is `all`, and the producer is idempotent.
        old_format: whether to write what Decaton before version 9 reads: a `DecatonTaskRequest`,
            and no header.
        traces: whether OpenTelemetry's current context goes with each task in its headers, so that
            what processes it belongs to the same trace; needs the extra `otel`.
        clock: tells when tasks are made.

    Raises:
        ConfigError: a setting is unknown, or cannot be honoured; or OpenTelemetry is not installed.

    Example:
        >>> producer = TaskProducer(
        ...     "mails", application_id="shop", bootstrap_servers="localhost:9092", value=JSON
        ... )
        >>> with producer:  # which closes it
        ...     producer.put("alice", {"subject": "hello"}, partition="first")
        Traceback (most recent call last):
        ...
        TypeError: A partition is a number of at least 0, or None, but was 'first'.
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
        # Ids that cannot be written are told now, not at the first task.
        self._metadata(0, 0).to_bytes()
        config = _client_config(bootstrap_servers, settings or {})
        self._max_block_ms = int(client_setting(config, "producer", "max.block.ms"))
        self._settings = librdkafka_settings(config, "producer", f"{application_id}-task-producer")
        self._user = user_of(self._settings)
        #: Why what is purged fails.
        self._purged_for: StreamsError | None = None
        self._refused: StreamsError | None = None
        self._closing = threading.Lock()
        #: Held for each task, so that none comes behind the last flush.
        self._putting = threading.Lock()
        self._is_closed = False
        self._all_sent = True
        self._ended = threading.Event()
        self._client = create_client(Producer, {**self._settings, "error_cb": self._on_error})
        self._thread = threading.Thread(
            target=self._hear, name=f"task-producer-{topic}", daemon=True
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
        """Write a task, without waiting for the brokers.

        Tasks that go to one partition arrive in the order of their `put`s. While the queue is full,
        waits for room, up to `max.block.ms`.

        Args:
            key: tasks of the same key are processed in order, one after another; None for any
                order.
            task: what to do; not None.
            timestamp_ms: when it was made, in milliseconds since the epoch; by default now. The
                record itself always has the present time.
            scheduled_time_ms: not to be processed before this time, in milliseconds since the
                epoch. What comes behind it under its key waits as well; under Decaton, by chance,
                other keys do, too.
            partition: where it goes; by default chosen by the key as Kafka's clients do.
            headers: of the record, beside `dt_meta`.

        Returns:
            Where it was written, once all brokers have it that must. What goes wrong on the way is
            raised by its `result()`: a `ProductionError` for a task that is too large or could not
            be delivered in time, an `AccessDeniedError`, a `BrokerUnavailableError` when there was
            no room. It cannot be cancelled.

        Raises:
            SerializationError: the key or the task cannot be written.
            TypeError: the partition is none, or the headers are no pairs of text and bytes.
            IllegalStateError: the producer is closed.

        Example:
            >>> with TaskProducer(
            ...     "mails", application_id="shop", bootstrap_servers="localhost:1", value=STRING
            ... ) as producer:
            ...     producer.put("alice", None)
            Traceback (most recent call last):
            ...
            millstream.errors.SerializationError: None is no task, ... (topic mails)
        """
        if partition is not None and (type(partition) is not int or partition < 0):
            raise TypeError(
                f"A partition is a number of at least 0, or None, but was {partition!r}."
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
        # It is not ours to take back once librdkafka has it.
        future.set_running_or_notify_cancel()
        self._hand_over(key_bytes, payload, partition, written, future)
        return future

    def flush(self, timeout: timedelta | None = None) -> bool:
        """Wait until every task is acknowledged, or has failed; what has failed, the futures tell.

        Args:
            timeout: how long to wait; None for as long as it takes: `delivery.timeout.ms` at most.

        Returns:
            Whether nothing is on its way any more.

        Raises:
            IllegalStateError: called in a callback of a future.

        Example:
            >>> with TaskProducer(
            ...     "mails", application_id="shop", bootstrap_servers="localhost:1", value=STRING
            ... ) as producer:
            ...     producer.flush(timedelta(seconds=5))
            True
        """
        self._refuse_in_callback("flush()")
        with self._putting:
            if self._is_closed:
                return self._all_sent
            client = self._client
        return not _flushed(client, -1 if timeout is None else timeout.total_seconds())

    def close(self, timeout: timedelta = _CLOSE) -> bool:
        """Wait until every task is acknowledged, and close. Further calls do nothing.

        Args:
            timeout: how long to wait. The futures of tasks that have no answer by then fail; the
                log tells how many.

        Returns:
            Whether all of them had an answer in time; the same each time it is called.

        Raises:
            IllegalStateError: called in a callback of a future.

        Example:
            >>> producer = TaskProducer(
            ...     "mails", application_id="shop", bootstrap_servers="localhost:1", value=STRING
            ... )
            >>> producer.close()
            True
        """
        self._refuse_in_callback("close()")
        with self._closing:
            if self._is_closed:
                return self._all_sent
            with self._putting:
                self._is_closed = True
            atexit.unregister(self.close)
            left = _flushed(self._client, timeout.total_seconds())
            self._all_sent = not left
            if left:
                self._give_up(left, timeout)
            self._ended.set()
            self._thread.join()
            # Without a last reference it closes its connections at once.
            del self._client
        return self._all_sent

    def _give_up(self, left: int, timeout: timedelta) -> None:
        _log.warning(
            "The task producer of topic %s closes with %d tasks that were not acknowledged within "
            "%s; their futures tell",
            self._topic,
            left,
            timeout,
        )
        self._purged_for = ProductionError(
            f"The task was not acknowledged before the producer was closed, within {timeout}. It "
            "may have been written all the same. Check that the brokers can be reached, or give "
            "close() more time.",
            topic=self._topic,
        )
        self._client.purge()
        _flushed(self._client, _REPORTS_TIMEOUT_S)

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
            what = "None" if task is None else f"{shown(task)}, of which {self._value} makes None,"
            raise SerializationError(
                f"{what} is no task, and would not be processed. Write something that says what "
                "to do.",
                topic=self._topic,
            )
        return payload

    def _hand_over(
        self,
        key: bytes | None,
        payload: bytes,
        partition: int | None,
        headers: Headers,
        future: Future[PutResult],
    ) -> None:
        on_delivery = partial(self._delivered, future)
        place = BY_KEY if partition is None else partition
        # A list of more than what we write, which its type says it takes.
        given: list[Any] = list(headers)
        deadline = Deadline(self._clock, self._max_block_ms)
        while True:
            try:
                with self._putting:
                    if self._is_closed:
                        raise IllegalStateError("The task producer is closed.", topic=self._topic)
                    self._client.produce(
                        self._topic, payload, key, place, on_delivery, headers=given
                    )
                return
            except BufferError:
                if deadline.passed:
                    future.set_exception(self._full())
                    return
                self._make_room()
            except RAISED as error:
                self._failed(future, reported_error(error), partition)
                return

    def _make_room(self) -> None:
        if threading.current_thread() is self._thread:
            # A callback that puts: nobody else would hear of what was acknowledged meanwhile.
            self._poll(_QUEUE_FULL_WAIT_MS / 1_000)
        else:
            self._clock.sleep_ms(_QUEUE_FULL_WAIT_MS)

    def _full(self) -> StreamsError:
        return BrokerUnavailableError(
            f"The producer's queue has been full for max.block.ms ({self._max_block_ms} ms): the "
            "brokers take tasks more slowly than they are made, or cannot be reached. Check the "
            "brokers, put less, or raise buffer.memory or max.block.ms.",
            topic=self._topic,
        )

    def _hear(self) -> None:
        """Hear of the brokers' answers until closed."""
        while not self._ended.is_set():
            self._poll(_POLL_S)
            if self._refused is not None:
                # Each would fail only after delivery.timeout.ms, and not say why.
                self._purged_for, self._refused = self._refused, None
                self._client.purge()

    def _poll(self, timeout_s: float) -> None:
        try:
            self._client.poll(timeout_s)
        except RAISED as error:
            _log.warning("The task producer met a fatal error: %s", reported_error(error).str())

    def _on_error(self, error: KafkaError) -> None:
        # The client's own log tells of each.
        if is_access_error(error):
            self._refused = login_error(error, self._settings)

    def _delivered(
        self, future: Future[PutResult], error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self._failed(future, error, message.partition())
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        future.set_result(PutResult(self._topic, partition, UNKNOWN if offset is None else offset))

    def _failed(self, future: Future[PutResult], error: KafkaError, partition: int | None) -> None:
        place = None if partition is None or partition < 0 else partition
        if self._purged_for is not None and error.code() in _PURGED:
            # Each an error of its own, so that each can be raised with a traceback of its own.
            future.set_exception(copy.copy(self._purged_for))
        else:
            future.set_exception(delivery_error(error, self._topic, place, user=self._user))

    def _refuse_in_callback(self, what: str) -> None:
        if threading.current_thread() is self._thread:
            raise IllegalStateError(
                f"{what} in a callback of a future would wait for itself: call it elsewhere.",
                topic=self._topic,
            )


def _flushed(client: Producer, timeout_s: float) -> int:
    """Wait for the answers to what is on its way; how many are missing after that time."""
    try:
        return client.flush(timeout_s)
    except RAISED as error:
        # What it had fails one by one.
        _log.warning("The task producer met a fatal error: %s", reported_error(error).str())
        return len(client)


def _client_config(
    bootstrap_servers: str | list[str], settings: Mapping[str, Any]
) -> StreamsConfig:
    """The settings of the client, where those of all clients are read and checked."""
    if "transactional.id" in settings:
        raise ConfigError("A task producer writes without transactions: drop transactional.id.")
    # No group, topic or directory is named after it.
    return StreamsConfig(
        application_id="task-producer",
        bootstrap_servers=bootstrap_servers,
        producer=settings,
    )
