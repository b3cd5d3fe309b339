"""What a stream thread works on, whatever it is inside: the seam between the loop and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from millstream.clock import Deadline
from millstream.errors import StreamsError
from millstream.kafka.member.events import CommitOffset
from millstream.record import TaskId, TopicPartition
from millstream.runtime.states import TaskState
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.task_meters import TaskMeters


class Work(Protocol):
    """Input partitions that one thread owns, and what becomes of their records.

    Records are taken in by `step` and finished by then or later. The loop commits all its work
    together, since it shares one producer: `drain` where the work is given up, then
    `prepare_commit`, the producer's flush, `offsets_to_commit`, the commit, `commit_begun`, and
    when it went through `post_commit`. Records may be taken between the last two.

    Invariant: `offsets_to_commit` names no offset before which a record is not finished, and a
    record is finished only when everything that it caused is handed to the producer.

    `StreamTask` is one: a sub-topology on one partition number. It finishes a batch within its
    step, but for what its operators do beside the loop.
    """

    @property
    def task_id(self) -> TaskId:
        """Its name, in the order of which work takes its turns."""
        ...

    @property
    def state(self) -> TaskState:
        """Where it is."""
        ...

    @property
    def meters(self) -> TaskMeters:
        """What measures it."""
        ...

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The input partitions."""
        ...

    @property
    def processed_total(self) -> int:
        """Records processed since it was created."""
        ...

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """Up to where each input partition is committed, by this work or by who had it before."""
        ...

    @property
    def commit_needed(self) -> bool:
        """Whether anything was done since the last commit."""
        ...

    @property
    def commit_requested(self) -> bool:
        """Whether user code has asked for a commit, and there is something to commit."""
        ...

    @property
    def buffered(self) -> int:
        """How many records wait to be taken."""
        ...

    @property
    def in_flight(self) -> int:
        """How many records were taken and are not finished."""
        ...

    def waiting_in(self, place: TopicPartition) -> int:
        """How many records of one partition wait."""
        ...

    def add_records(self, place: TopicPartition, records: RawRecords) -> None:
        """Queue the records of a poll."""
        ...

    def pass_over(self, place: TopicPartition, offset: int) -> None:
        """Nothing that could be taken is left before an offset of a partition: if nothing waits and
        something was taken before, commit that."""
        ...

    def is_processable(self, at_end: Callable[[TopicPartition], bool], max_idle_ms: int) -> bool:
        """Whether records may be taken now.

        Args:
            at_end: whether the end of a partition on the broker has been reached.
            max_idle_ms: how long a partition without records is waited for (`max.task.idle.ms`).
        """
        ...

    def step(self, limit: int) -> int:
        """Take at most `limit` records and work on them; how many were taken.

        Raises:
            StreamsError: a record could not be read, or user code failed, and nobody said to go on.
        """
        ...

    def drain(self, deadline: Deadline) -> bool:
        """Wait until all that was taken is finished, and take nothing meanwhile.

        What is not finished by the deadline is not committed, but repeated by the next owner.
        After `halt` it waits no longer than for what runs.

        Returns:
            Whether everything is finished.

        Raises:
            StreamsError: user code failed, and nobody said to go on.
        """
        ...

    def halt(self) -> None:
        """Begin nothing more of what was taken; it is given up after this."""
        ...

    @property
    def may_land(self) -> bool:
        """Whether anything in flight may still be finished: after `halt` only what runs."""
        ...

    def may_commit(self) -> bool:
        """Whether it can be committed; else something must be finished first, and the commit is to
        be tried again. Where that may be so, nothing more is taken before `prepare_commit`."""
        ...

    def prepare_commit(self) -> None:
        """Hand on what is held back for later, so that the offsets stand for all of it."""
        ...

    @property
    def awaits_sent(self) -> bool:
        """Whether records are only finished when what they have sent has arrived."""
        ...

    def sent(self) -> None:
        """Everything that was sent has arrived, or was refused: finish those records."""
        ...

    def offsets_to_commit(self) -> dict[TopicPartition, CommitOffset]:
        """Where to go on after a restart, for each partition that was read."""
        ...

    def commit_begun(self) -> None:
        """The offsets are on their way: what comes from now on is for the next commit."""
        ...

    def commit_failed(self) -> None:
        """They were not committed: the next commit has them, too."""
        ...

    def post_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], acked: Mapping[TopicPartition, int]
    ) -> None:
        """The offsets are committed: let state be written that stands for them.

        Args:
            offsets: what was committed, of other work as well.
            acked: the last acknowledged offset of each changelog partition that the thread's
                producer has written.
        """
        ...

    def close(self, *, clean: bool) -> None:
        """Give it up.

        Args:
            clean: whether everything was committed; if not, what was not is repeated by whoever is
                next.
        """
        ...

    def fail(self, error: Exception) -> StreamsError:
        """The error with this work as its place."""
        ...


@contextmanager
def failures_of(work: Work) -> Iterator[None]:
    """Let what goes wrong inside name the work that it went wrong in.

    Raises:
        StreamsError: instead of any error.
    """
    try:
        yield
    except Exception as error:
        failure = work.fail(error)
        raise failure from failure.__cause__
