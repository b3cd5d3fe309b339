"""The librdkafka producers of a `RecordProducer`.

This module creates, replaces and closes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, Producer

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError, IllegalStateError, StreamsError
from millstream.kafka.clients.producer_errors import RAISED, reported_error
from millstream.kafka.clients.writer import Writer
from millstream.kafka.cluster.retries import retry_until_available
from millstream.kafka.librdkafka_errors import is_access_error, login_error

_log = logging.getLogger(__name__)

#: Timeout for the delivery reports of purged records, which arrive immediately.
_REPORTS_TIMEOUT_S: Final = 1.0
#: librdkafka's default of `batch.size`.
_BATCH_BYTES: Final = 1_000_000


_SETTING: Final = "max.message.bytes"
#: The timeout of one attempt to read topic configs; `on_wait` is called between attempts.
_ATTEMPT_TIMEOUT_MS: Final = 3_000


class ProducerClients:
    """The clients of one producer.

    The main client writes to most topics. Tracked topics may need a second client, and each smaller
    batch size that topics require needs another one, because the batch size is a setting of the
    whole client.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str | None,
        writer: Writer,
        clock: Clock,
    ) -> None:
        self._settings = dict(settings)
        self._writer = writer
        self._clock = clock
        self._identity = {"transactional.id": transactional_id} if transactional_id else {}
        self.transactional = transactional_id is not None
        self.batch_bytes = int(settings.get("batch.size", _BATCH_BYTES))
        #: Clients with smaller batches, by whether their topics are tracked and by batch size.
        self._smaller: dict[tuple[bool, int], Producer] = {}
        #: The error of a rejected login, until the producer raises it.
        self.access_failure: StreamsError | None = None
        self._connection_error = ""
        self.closed = False
        #: The client for tracked topics, if they need a separate one.
        self.tracked: Producer | None = None
        #: The client for the other topics.
        self.main = self._create(self._identity)

    def track(self) -> None:
        if self.tracked is None and self._writer.needs_tracking_client:
            self.tracked = self._create({}, tracked=True)

    def client_for(self, *, tracked: bool, max_bytes: int | None) -> Producer:
        """Return the client for a topic. For a tracked topic, call `track` first.

        A transactional producer has a single client, and `limit_batches` limits all of its batches.
        """
        separate = tracked and self.tracked is not None
        if self.transactional or max_bytes is None or max_bytes >= self.batch_bytes:
            return self.tracked if separate and self.tracked is not None else self.main
        client = self._smaller.get((separate, max_bytes))
        if client is None:
            _log.info("Batches for some topics are limited to %d bytes", max_bytes)
            client = self._create({"batch.size": max_bytes}, tracked=separate)
            self._smaller[separate, max_bytes] = client
        return client

    def limit_batches(self, max_bytes: int) -> None:
        """Limit the batches of clients that are created later."""
        _log.info("Batches are limited to %d bytes", max_bytes)
        self._settings["batch.size"] = self.batch_bytes = max_bytes

    def all(self) -> list[Producer]:
        """Return all clients. Raises IllegalStateError after `close`."""
        if self.closed:
            raise IllegalStateError("The producer is closed.")
        separate = [] if self.tracked is None else [self.tracked]
        return [self.main, *separate, *self._smaller.values()]

    def connection_hint(self) -> str:
        """Return the latest connection error as a suffix for messages: ` (...)`."""
        return f" ({self._connection_error})" if self._connection_error else ""

    def renew(self) -> None:
        """Replace the transactional client. The new client has to be initialized.

        The broker then aborts the open transaction of the old client.
        """
        new = self._create(self._identity)
        self._writer.release(self.main)
        # Without references, the old client closes its connections immediately.
        self.main = new
        self.access_failure = None

    def replace(self, timeout_ms: int) -> None:
        """Drop queued records, and replace the clients.

        Waits for the responses to records in flight. Not for transactional producers.
        """
        deadline = Deadline(self._clock, timeout_ms)
        clients = self.all()
        waiting = sum(map(len, clients))
        for client in clients:
            client.purge(in_flight=False)
        for client in clients:
            _finish(client, deadline.remaining_ms(timeout_ms))
        if waiting:
            _log.info("Dropped up to %d unacknowledged records", waiting)
        # The old clients cannot be used anymore: the dropped records leave gaps in the sequence
        # numbers by which the broker detects duplicates.
        for client in clients:
            self._writer.release(client)
        self._smaller.clear()
        self.main = self._create({})
        if self.tracked is not None:
            self.tracked = self._create({}, tracked=True)
        self.access_failure = None

    def close(self, timeout_ms: int) -> None:
        """Send the remaining records within the timeout; drop the rest with a warning."""
        deadline = Deadline(self._clock, timeout_ms)
        for client in self.all():
            if self.transactional:
                # The next owner of the transactional id aborts the open transaction, so there is no
                # need to wait for that here.
                client.purge()
            left = _finish(client, deadline.remaining_ms(timeout_ms))
            if left:
                _log.warning("The producer closes with %d unacknowledged records", left)
            self._writer.release(client)
        self.closed = True
        # Without a broker, Producer.close() waits forever to abort a transaction. Dropping the last
        # reference closes the connections immediately.
        self._smaller.clear()
        self.tracked = None
        del self.main

    def _create(self, own: Mapping[str, Any], *, tracked: bool = False) -> Producer:
        settings = {**self._settings, **own, "error_cb": self._on_client_error}
        return self._writer.create(settings, tracked=tracked)

    def _on_client_error(self, error: KafkaError) -> None:
        # librdkafka logs every error. Keep only errors that may explain a later error.
        if is_access_error(error):
            self.access_failure = self.access_failure or login_error(error, self._settings)
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._connection_error = error.str().rstrip(".")


def _finish(client: Producer, timeout_ms: int) -> int:
    """Wait for acknowledgments, purge the other records, and return their number."""
    left = 0
    try:
        left = client.flush(timeout_ms / 1_000) if timeout_ms else len(client)
        if left:
            client.purge()
            client.flush(_REPORTS_TIMEOUT_S)
    except RAISED as error:
        _log.warning("The producer closes after a fatal error: %s", reported_error(error).str())
    return left


class TopicConfigs(Protocol):
    """The part of the admin client that reads topic configs."""

    def topic_configs(
        self, topics: Iterable[str], timeout_ms: int, /
    ) -> Mapping[str, Mapping[str, str | None]]: ...


class BatchLimits:
    """Reads the maximum batch size of topics.

    Retries for `timeout_ms` (`task.timeout.ms`). Unlike Java's producer, librdkafka does not split
    a batch that is too large for the broker. Its `batch.size` counts bytes before compression, so
    with a `batch.size` of at most the topic's `max.message.bytes`, only a single larger record can
    be rejected.
    """

    def __init__(self, configs: TopicConfigs, clock: Clock, timeout_ms: int) -> None:
        self._configs = configs
        self._clock = clock
        self._timeout_ms = timeout_ms

    def of(self, topic: str, on_wait: Callable[[], None]) -> int | None:
        """Return a topic's limit in bytes; None if it cannot be read.

        Raises BrokerUnavailableError after the timeout.
        """
        try:
            found = retry_until_available(
                lambda: self._configs.topic_configs([topic], _ATTEMPT_TIMEOUT_MS),
                f"{topic} cannot be written to",
                self._timeout_ms,
                self._clock,
                on_wait,
            )
        except BrokerUnavailableError:
            raise
        except StreamsError as error:
            _log.info(
                "%s of %s is unknown, so batches may be too large for the topic. Grant "
                "DESCRIBE_CONFIGS on the topic, or lower the producer's batch.size if the broker "
                "rejects batches: %s",
                _SETTING,
                topic,
                error,
            )
            return None
        value = found.get(topic, {}).get(_SETTING)
        return None if value is None else int(value)
