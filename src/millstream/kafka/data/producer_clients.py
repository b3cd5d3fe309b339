"""The librdkafka producers behind a `RecordProducer`, from their making to their end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from millstream.clock import Clock, Deadline
from millstream.errors import IllegalStateError, StreamsError
from millstream.kafka.data.producer_errors import RAISED, reported_error
from millstream.kafka.data.writer import Writer
from millstream.kafka.librdkafka_errors import is_access_error, login_error

_log = logging.getLogger(__name__)

#: For the reports about purged records, which wait for nothing.
_REPORTS_TIMEOUT_S: Final = 1.0
#: librdkafka's default.
_BATCH_BYTES: Final = 1_000_000


class ProducerClients:
    """One client, or two where topics are tracked and need one of their own, and more for topics
    that only take smaller batches than the others: their size is a choice for the whole client.

    Args:
        settings: from `librdkafka_settings` for "producer".
        transactional_id: makes it a transactional producer.
        writer: makes the clients, and hands them records.
        clock: where deadlines are measured.

    Raises:
        ConfigError: librdkafka refuses a setting.
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
        self._batch_bytes = int(settings.get("batch.size", _BATCH_BYTES))
        #: By whether its topics are tracked, and the size of their batches.
        self._smaller: dict[tuple[bool, int], Producer] = {}
        #: A login that was refused, until somebody is told.
        self.access_failure: StreamsError | None = None
        self._connection_error = ""
        self.closed = False
        #: For the topics that are tracked, where those need one of their own.
        self.tracked: Producer | None = None
        #: For the others.
        self.main = self._create(self._identity)

    def track(self) -> None:
        """Topics are to be tracked from now on."""
        if self.tracked is None and self._writer.tracks_apart:
            self.tracked = self._create({}, tracked=True)

    def client_for(self, *, tracked: bool, most_bytes: int | None) -> Producer:
        """The client for a topic.

        Args:
            tracked: whether it is tracked; `track` was called then.
            most_bytes: the size of the batches that it takes; None if any will do. Not heeded in
                transactions, which one client has to write: all its batches are limited.
        """
        apart = tracked and self.tracked is not None
        if self.transactional or most_bytes is None or most_bytes >= self._batch_bytes:
            return self.tracked if apart and self.tracked is not None else self.main
        client = self._smaller.get((apart, most_bytes))
        if client is None:
            _log.info("Batches for some topics are limited to %d bytes", most_bytes)
            client = self._create({"batch.size": most_bytes}, tracked=apart)
            self._smaller[apart, most_bytes] = client
        return client

    @property
    def batch_bytes(self) -> int:
        """The size of batches that no topic has limited."""
        return self._batch_bytes

    def limit_batches(self, most_bytes: int) -> None:
        """Let clients that are made from now on send no larger batches."""
        _log.info("Batches are limited to %d bytes", most_bytes)
        self._settings["batch.size"] = self._batch_bytes = most_bytes

    def all(self) -> list[Producer]:
        """Each client once.

        Raises:
            IllegalStateError: they are closed.
        """
        if self.closed:
            raise IllegalStateError("The producer is closed.")
        apart = [] if self.tracked is None else [self.tracked]
        return [self.main, *apart, *self._smaller.values()]

    def because(self) -> str:
        """What the connections have met with, to be put behind an error."""
        return f" ({self._connection_error})" if self._connection_error else ""

    def renew(self) -> None:
        """Begin with a new client, which has to be initialized; for a transactional one. What the
        old one left open ends then."""
        new = self._create(self._identity)
        self._writer.release(self.main)
        # Without a last reference the old one closes its connections at once.
        self.main = new
        self.access_failure = None

    def replace(self, timeout_ms: int) -> None:
        """Drop what waits, wait for the answers to what is on its way, and begin with new clients;
        not for a transactional one."""
        deadline = Deadline(self._clock, timeout_ms)
        clients = self.all()
        waiting = sum(map(len, clients))
        for client in clients:
            client.purge(in_flight=False)
        for client in clients:
            _finish(client, deadline.remaining_ms(timeout_ms))
        if waiting:
            _log.info("Dropped up to %d records that were not acknowledged", waiting)
        # The old ones cannot go on: in the numbers by which the broker tells doubles, what was
        # dropped is a gap.
        for client in clients:
            self._writer.release(client)
        self._smaller.clear()
        self.main = self._create({})
        if self.tracked is not None:
            self.tracked = self._create({}, tracked=True)
        self.access_failure = None

    def close(self, timeout_ms: int) -> None:
        """Send what is left within the timeout, and drop the rest with a warning."""
        deadline = Deadline(self._clock, timeout_ms)
        for client in self.all():
            if self.transactional:
                # The next owner of the transactional id aborts what is open, without waiting for it
                # here.
                client.purge()
            left = _finish(client, deadline.remaining_ms(timeout_ms))
            if left:
                _log.warning("The producer closes with %d records that were not acknowledged", left)
            self._writer.release(client)
        self.closed = True
        # Producer.close() waits for ever to abort a transaction when no broker answers; losing the
        # last reference closes the connections at once.
        self._smaller.clear()
        self.tracked = None
        del self.main

    def _create(self, own: Mapping[str, Any], *, tracked: bool = False) -> Producer:
        told = {**self._settings, **own, "error_cb": self._on_client_error}
        return self._writer.create(told, tracked=tracked)

    def _on_client_error(self, error: KafkaError) -> None:
        # The client's own log tells of each; here only what a later error may be explained with.
        if is_access_error(error):
            self.access_failure = self.access_failure or login_error(error, self._settings)
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._connection_error = error.str().rstrip(".")


def _finish(client: Producer, timeout_ms: int) -> int:
    """Wait for acknowledgements, and give up on what has none in time; how many that were."""
    left = 0
    try:
        left = client.flush(timeout_ms / 1_000) if timeout_ms else len(client)
        if left:
            client.purge()
            client.flush(_REPORTS_TIMEOUT_S)
    except RAISED as error:
        _log.warning("The producer ends after a fatal error: %s", reported_error(error).str())
    return left
