"""At least once: everything a record caused is written before its offset is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.cluster.insisting import in_steps, insist
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.protocols import CommitAnswer, Producer
from millstream.record import TopicPartition
from millstream.runtime.loop.publication import Confirmation

#: How long one attempt to commit offsets may take.
_COMMIT_TIMEOUT_MS = 15_000


class OffsetCommitter(Protocol):
    """The group member, as far as commits go."""

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None: ...

    def begin_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int
    ) -> CommitAnswer: ...

    def progress(self) -> None:
        """The processing loop is alive, though it waits (`max.poll.interval.ms`)."""
        ...


class AtLeastOnce:
    """Waits until outputs and changelogs are acknowledged, then commits offsets.

    What the cluster does not answer is tried again. `task.timeout.ms` bounds the tries after the
    first failed one: a single try always has the time that its kind of request needs, so with 0
    there is one try.

    Args:
        producer: the thread's producer.
        committer: commits offsets. Told of progress while the cluster does not answer: a thread
            that waits out an outage is not to lose its tasks for it.
        clock: for the timeouts.
        timeout_ms: how long a request that has failed is tried again (`task.timeout.ms`).
        flush_timeout_ms: how long one flush may take: as long as the producer itself goes on trying
            to deliver a record.
        on_delivered: called when everything that was sent is acknowledged.
    """

    all_or_nothing = False
    is_open = False

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
        """Tasks may begin at any time."""
        return True

    def publish(self, offsets: Mapping[TopicPartition, CommitOffset], whole: Deadline) -> None:
        """Wait for all acknowledgements, then commit; see `Publication`."""
        self._flush(whole)
        self.commit(offsets, whole)

    def publish_soon(
        self, offsets: Mapping[TopicPartition, CommitOffset], whole: Deadline
    ) -> Confirmation | None:
        """Wait for all acknowledgements, then let the offsets be committed."""
        self._flush(whole)
        if not offsets:
            return None
        return _Offsets(offsets, self._committer.begin_commit(offsets, _COMMIT_TIMEOUT_MS), self)

    def commit(
        self,
        offsets: Mapping[TopicPartition, CommitOffset],
        whole: Deadline,
        begun: CommitAnswer | None = None,
    ) -> None:
        """Have offsets committed, for which all acknowledgements are there.

        Args:
            offsets: what to commit.
            whole: nothing is tried after it.
            begun: the first try, if it was made already.
        """
        tries = [] if begun is None else [begun]

        def attempt(timeout_ms: int) -> None:
            if tries:
                # Who answers knows best how long that takes, unless the time is over before.
                tries.pop().take(timeout_ms if timeout_ms < _COMMIT_TIMEOUT_MS else None)
            else:
                self._committer.commit(offsets, timeout_ms)

        self._insist("offsets are not committed", attempt, _COMMIT_TIMEOUT_MS, whole)

    def settle(self, whole: Deadline) -> None:
        """Wait for all acknowledgements."""
        self._flush(whole)

    def forget_sent(self) -> None:
        """Drop what still waits in the producer, since it would come after what the new owners
        write."""
        self._producer.purge()

    def _flush(self, whole: Deadline) -> None:
        what = "records that were sent are not acknowledged"
        self._insist(what, self._flush_in_steps, self._flush_timeout_ms, whole)
        self._on_delivered()

    def _flush_in_steps(self, timeout_ms: int) -> None:
        deadline = Deadline(self._clock, timeout_ms)
        try:
            in_steps(self._producer.flush, deadline, self._committer.progress)
        except BrokerUnavailableError as error:
            raise BrokerUnavailableError(
                f"What was sent is not acknowledged after {timeout_ms} ms, at last: {error.message}"
            ) from error

    def _insist(
        self, what: str, attempt: Callable[[int], None], most_ms: int, whole: Deadline
    ) -> None:
        insist(
            lambda: attempt(whole.remaining_ms(most_ms)),
            what,
            self._timeout_ms,
            self._clock,
            self._committer.progress,
            # An attempt itself waits for long.
            pause_ms=0,
            whole=whole,
        )


class _Offsets:
    """Offsets that the group was sent, with everything acknowledged that they stand for."""

    def __init__(
        self,
        offsets: Mapping[TopicPartition, CommitOffset],
        begun: CommitAnswer,
        guarantee: AtLeastOnce,
    ) -> None:
        self._offsets = offsets
        self._begun = begun
        self._guarantee = guarantee

    @property
    def is_there(self) -> bool:
        """See `Confirmation`."""
        return self._begun.is_there

    def take(self, whole: Deadline) -> None:
        """See `Confirmation`. What the cluster does not answer is tried again here."""
        self._guarantee.commit(self._offsets, whole, self._begun)
