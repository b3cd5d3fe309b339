"""Pending state store queries, answered between batches and during commits."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from millstream.clock import Clock
from millstream.errors import ThreadUnavailableError
from millstream.runtime.queries.query_messages import StoreRequest
from millstream.runtime.thread_control import Control, ReceivedCommand

logger = logging.getLogger(__name__)

#: How long queries are answered in one round of the loop.
ROUND_MS: Final = 10

#: Limits while queries arrive: the target duration of a batch, how long it applies after a query,
#: and the minimum size of a batch.
_BATCH_MS: Final = 5
_ACTIVE_MS: Final = 1_000
_MIN_RECORDS: Final = 100


class BatchLimiter:
    """Reduces the batch size while queries arrive.

    Queries are answered between batches. A batch of several thousand records takes tens of
    milliseconds. Batches of 5 ms reduce the throughput by a few percent.
    """

    def __init__(self, max_records: int, clock: Clock) -> None:
        self._max_records = max_records
        self._clock = clock
        self._limit = max_records
        self._active_until_ms: int | None = None

    @property
    def limit(self) -> int:
        return self._limit if self.has_recent_query else self._max_records

    @property
    def has_recent_query(self) -> bool:
        """Whether a query arrived recently, so that more are likely."""
        if self._active_until_ms is not None and self._clock.monotonic_ms() > self._active_until_ms:
            self._active_until_ms = None
        return self._active_until_ms is not None

    def on_query(self) -> None:
        self._active_until_ms = self._clock.monotonic_ms() + _ACTIVE_MS

    def record_batch(self, count: int, took_ms: int) -> None:
        if self._active_until_ms is None:
            return
        if took_ms > _BATCH_MS:
            self._limit = max(_MIN_RECORDS, count * _BATCH_MS // took_ms)
        elif count >= self._limit and 2 * took_ms < _BATCH_MS:
            self._limit = min(self._max_records, 2 * self._limit)


class _PendingQuery(NamedTuple):
    received: ReceivedCommand
    request: StoreRequest[Any]
    deadline_ms: int


class PendingQueries:
    """Answers queries in the order of their arrival, a few at a time.

    Not thread-safe.

    In Kafka Streams, a query runs on its caller's thread. Here, queries run on the stream thread,
    so a large number of callers must not block processing. Timed-out queries are dropped;
    otherwise, after a long pause, the thread would answer all of them and keep cursors open for
    their results.
    """

    def __init__(
        self,
        answer: Callable[[StoreRequest[Any]], Any],
        control: Control,
        clock: Clock,
        batch_limiter: BatchLimiter,
    ) -> None:
        self._answer = answer
        self._control = control
        self._clock = clock
        self._batch_limiter = batch_limiter
        self._pending: deque[_PendingQuery] = deque()
        #: Other commands that were received along with queries.
        self._other_commands: list[ReceivedCommand] = []

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def process_io(self) -> None:
        """Receive queries and send replies now, if a query arrived recently."""
        if self._batch_limiter.has_recent_query:
            self._control.process_io()

    def commands(self) -> list[ReceivedCommand]:
        """Return the other commands, oldest first. Queries become pending."""
        self.process_io()
        self.receive()
        found, self._other_commands = self._other_commands, []
        return found

    def receive(self) -> None:
        """Add new queries to the pending queries, and keep other commands for later."""
        for received in self._control.commands():
            if isinstance(received.command, StoreRequest):
                self.add(received, received.command)
            else:
                self._other_commands.append(received)

    def add(self, received: ReceivedCommand, request: StoreRequest[Any]) -> None:
        self._batch_limiter.on_query()
        arrived_ms = received.arrived_ms
        if arrived_ms is None:
            arrived_ms = self._clock.monotonic_ms()
        self._pending.append(_PendingQuery(received, request, arrived_ms + request.timeout_ms))

    def end(self, thread: str) -> None:
        """Reject pending and future requests, because closing may take a long time."""
        error = ThreadUnavailableError(
            f"Stream thread {thread} is closing and accepts no more queries. Repeat the query in a "
            "moment, when other threads have its tasks."
        )
        while self._pending:
            self._control.reply(self._pending.popleft().received, error)
        for received in self._other_commands:
            self._control.reply(received, error)
        self._control.reject_requests(error)

    def answer_some(self) -> None:
        """Answer pending queries for a limited time, but at least one."""
        if not self._pending:
            return
        until_ms = self._clock.monotonic_ms() + ROUND_MS
        expired = 0
        while self._pending:
            now_ms = self._clock.monotonic_ms()
            if now_ms > until_ms:
                break
            query = self._pending.popleft()
            if now_ms > query.deadline_ms:
                expired += 1
            else:
                self._control.reply(query.received, self._answer(query.request))
        self.process_io()
        if expired:
            logger.info("dropped %d timed-out queries", expired)
