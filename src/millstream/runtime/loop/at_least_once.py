"""At-least-once: a record's results are written before its offset is committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.cluster.retries import retry_until_available, wait_in_steps
from millstream.kafka.membership.member_events import CommitOffset
from millstream.kafka.protocols import CommitResponse, Producer
from millstream.record import TopicPartition

#: The timeout of one attempt to commit offsets.
_COMMIT_TIMEOUT_MS = 15_000


class OffsetCommitter(Protocol):
    """The methods of the group member that commits need."""

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None: ...
    def begin_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int
    ) -> CommitResponse: ...
    def progress(self) -> None:
        """Report that the loop is alive while it waits (`max.poll.interval.ms`)."""


class AtLeastOnce:
    """Waits until outputs and changelogs are acknowledged, then commits offsets.

    Requests without a response are retried. `task.timeout.ms` limits the retries after the first
    failure. Each attempt has the timeout of its kind of request, so 0 means a single attempt.

    Args:
        committer: commits offsets. Receives progress reports while the cluster does not respond, so
            that a thread does not lose its tasks while it waits for the end of an outage.
        flush_timeout_ms: the timeout of a flush, which exceeds the time for which the producer
            itself retries a record.
        on_delivered: called when all sent records are acknowledged.
    """

    all_or_nothing = False
    in_transaction = False

    def __init__(
        self,
        producer: Producer,
        committer: OffsetCommitter,
        clock: Clock,
        timeout_ms: int,
        flush_timeout_ms: int,
        on_delivered: Callable[[], None] = lambda: None,
    ) -> None:
        self._producer = producer
        self._committer = committer
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._flush_timeout_ms = flush_timeout_ms
        self._on_delivered = on_delivered

    def is_ready(self) -> bool:
        return True

    def publish(self, offsets: Mapping[TopicPartition, CommitOffset], overall: Deadline) -> None:
        self._flush(overall)
        self._commit(offsets, overall)

    def publish_async(
        self, offsets: Mapping[TopicPartition, CommitOffset], overall: Deadline
    ) -> CommitResponse | None:
        self._flush(overall)
        if not offsets:
            return None
        return self._committer.begin_commit(offsets, _COMMIT_TIMEOUT_MS)

    def await_commit(
        self,
        offsets: Mapping[TopicPartition, CommitOffset],
        response: CommitResponse,
        overall: Deadline,
    ) -> None:
        self._commit(offsets, overall, response)

    def _commit(
        self,
        offsets: Mapping[TopicPartition, CommitOffset],
        overall: Deadline,
        first_attempt: CommitResponse | None = None,
    ) -> None:
        tries = [] if first_attempt is None else [first_attempt]

        def attempt(timeout_ms: int) -> None:
            if tries:
                # The pending request has its own timeout, which a shorter deadline overrides.
                tries.pop().result(timeout_ms if timeout_ms < _COMMIT_TIMEOUT_MS else None)
            else:
                self._committer.commit(offsets, timeout_ms)

        self._retry("offsets are not committed", attempt, _COMMIT_TIMEOUT_MS, overall)

    def await_delivery(self, overall: Deadline) -> None:
        self._flush(overall)

    def discard_uncommitted(self) -> None:
        """Discard unsent records, which could otherwise follow writes of the new owners."""
        self._producer.purge()

    def _flush(self, overall: Deadline) -> None:
        what = "sent records are not acknowledged"
        self._retry(what, self._flush_in_steps, self._flush_timeout_ms, overall)
        self._on_delivered()

    def _flush_in_steps(self, timeout_ms: int) -> None:
        deadline = Deadline(self._clock, timeout_ms)
        try:
            wait_in_steps(self._producer.flush, deadline, self._committer.progress)
        except BrokerUnavailableError as error:
            raise BrokerUnavailableError(
                f"Sent records were not acknowledged within {timeout_ms} ms. Last error: "
                f"{error.message}"
            ) from error

    def _retry(
        self, what: str, attempt: Callable[[int], None], max_ms: int, overall: Deadline
    ) -> None:
        retry_until_available(
            lambda: attempt(overall.remaining_ms(max_ms)),
            what,
            self._timeout_ms,
            self._clock,
            self._committer.progress,
            # An attempt itself waits long enough.
            pause_ms=0,
            overall=overall,
        )
