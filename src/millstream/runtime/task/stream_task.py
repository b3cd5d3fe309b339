"""One task: a sub-topology at work on one partition number of its input topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from millstream.clock import Clock
from millstream.errors import StreamsError
from millstream.kafka.member.events import CommitOffset
from millstream.processor.punctuation import PunctuationType
from millstream.record import TaskId, TopicPartition
from millstream.runtime.state_machine import StateMachine
from millstream.runtime.states import TASK_STATES, TaskState
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.runtime.task.engine_task import EngineTask
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.partition_group import PartitionGroup
from millstream.runtime.task.punctuations import Agenda, Punctuations
from millstream.runtime.task.record_queue import RawRecords
from millstream.state.task_stores import TaskStores

logger = logging.getLogger(__name__)

#: About how long a batch should take, and how many records the first one has.
_BATCH_MS = 200
_FIRST_BATCH_RECORDS = 128
#: How often caches are flushed for one commit until none has changes. Nodes that write only to
#: stores of their own need as many times as stores lie one below the other.
_MOST_FLUSHES = 100


class StreamTask:
    """Reads its partitions, runs its nodes, knows what it has to commit.

    The task does not commit by itself: its thread commits all tasks together, since they share one
    producer. The order is `prepare_commit`, the producer's flush, `offsets_to_commit`, the commit,
    `post_commit` (design section 2).

    Invariant: an offset is committed only after everything that its record caused was written.

    Args:
        task_id: the task.
        stores: its stores, not yet open.
        group: its input queues.
        executor: its nodes.
        clock: dates changes of state.
        punctuations: what its processors want to be called for, by time.
        engine_task: the task as its nodes see it.
    """

    def __init__(
        self,
        task_id: TaskId,
        *,
        stores: TaskStores,
        group: PartitionGroup,
        executor: Executor,
        clock: Clock,
        punctuations: Punctuations,
        engine_task: EngineTask,
    ) -> None:
        self.task_id = task_id
        self.stores = stores
        self.commit_needed = False
        #: Up to where each input partition is committed, as far as this task did it.
        self.committed: dict[TopicPartition, int] = {}
        #: Records processed since the task was created.
        self.processed_total = 0
        self._group = group
        self._executor = executor
        self._clock = clock
        self._punctuations = punctuations
        self._engine_task = engine_task
        self._batch_limit = _FIRST_BATCH_RECORDS
        self._has_run = False
        self._warned_of_circle = False
        self._state = StateMachine(
            f"Task {task_id}", TaskState.CREATED, TASK_STATES, clock, self._log_state
        )

    @property
    def state(self) -> TaskState:
        """Where the task is."""
        return self._state.state

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The input partitions."""
        return frozenset(self._group.queues)

    @property
    def buffered(self) -> int:
        """How many records wait."""
        return self._group.size

    def waiting_in(self, place: TopicPartition) -> int:
        """How many records of one partition wait."""
        return self._group.queues[place].size

    def open_stores(self) -> None:
        """Lock the task's directory and open its stores.

        Raises:
            LockError: another process holds the directory; try again later.
            TaskCorruptedError: what is on disk cannot be trusted.
        """
        self.stores.open()
        self._state.transition_to(TaskState.RESTORING, "stores are open")

    def start(self, committed: Mapping[TopicPartition, CommitOffset | None]) -> None:
        """Begin to process: stores are restored, committed offsets are known."""
        for place, queue in self._group.queues.items():
            offset = committed.get(place)
            if offset is not None:
                metadata = CommitMetadata.decode(offset.metadata)
                queue.partition_time = metadata.partition_time
                self._group.stream_time = max(self._group.stream_time, metadata.partition_time)
                self._remember(metadata)
        self._has_run = True
        self._executor.init()
        self._state.transition_to(TaskState.RUNNING, "restored")

    def add_records(self, place: TopicPartition, records: RawRecords) -> None:
        """Queue the records of a poll."""
        self._group.queues[place].add(records)

    def is_processable(self, at_end: Callable[[TopicPartition], bool], max_idle_ms: int) -> bool:
        """Whether the next record may be taken now; see `PartitionGroup.is_ready`."""
        return self._group.size > 0 and self._group.is_ready(
            at_end, max_idle_ms, self._clock.monotonic_ms()
        )

    def process(self, most: int) -> int:
        """Take a batch of at most `most` records through the nodes; how many it was.

        Raises:
            StreamsError: a record could not be read, or user code failed, and nobody said to go on.
        """
        started_ms = self._clock.monotonic_ms()
        limit = min(most, self._batch_limit)
        batches = self._group.next_batch(
            limit, self._punctuations.next_ms(PunctuationType.STREAM_TIME)
        )
        if batches is None:
            # What waited was left out: its offsets are to be committed all the same.
            self.commit_needed = True
            return 0
        self.commit_needed = True
        self._executor.run(batches)
        count = sum(len(batch) for _, batch in batches)
        self.processed_total += count
        self._fit_batches(count, limit, self._clock.monotonic_ms() - started_ms)
        return count

    @property
    def commit_requested(self) -> bool:
        """Whether a processor has asked for a commit, and there is something to commit."""
        return self._engine_task.commit_requested and self.commit_needed

    @property
    def next_wall_clock_ms(self) -> int | None:
        """When the next punctuation by wall clock is due; None if there is none."""
        return self._punctuations.next_ms(PunctuationType.WALL_CLOCK_TIME)

    def note_in(self, agenda: Agenda) -> None:
        """Note in this agenda when the task is to be punctuated next."""
        self._punctuations.note_in(agenda)

    def punctuate_stream_time(self) -> bool:
        """Make the calls that are due by stream time; whether there were any.

        To be called after each batch, which ends where stream time reaches the next one.
        """
        stream_time = self._group.stream_time
        return stream_time >= 0 and self._punctuate(PunctuationType.STREAM_TIME, stream_time)

    def punctuate_wall_clock_time(self) -> bool:
        """Make the calls that are due by wall clock; whether there were any."""
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, self._clock.now_ms())

    def _punctuate(self, kind: PunctuationType, now_ms: int) -> bool:
        called = self._punctuations.run_due(kind, now_ms, self._executor.punctuate)
        self.commit_needed = self.commit_needed or called
        return called

    def _remember(self, metadata: CommitMetadata) -> None:
        """Take over what operators knew; of several partitions the latest."""
        remembered = self._engine_task.remembered
        for name, time in metadata.processors.items():
            remembered[name] = max(time, remembered.get(name, time))

    def _fit_batches(self, count: int, limit: int, took_ms: int) -> None:
        """Let the next batch take about `_BATCH_MS`, however slow the user's code is.

        Commits, rebalances and the command to close wait for the end of a batch.
        """
        if took_ms > _BATCH_MS:
            self._batch_limit = max(1, count * _BATCH_MS // took_ms)
        elif count == limit and 2 * took_ms < _BATCH_MS:
            self._batch_limit = max(self._batch_limit, 2 * limit)

    def prepare_commit(self) -> None:
        """Let go of what is held back in caches, with all it causes downstream.

        Store by store in the order of the topology, and again while what was handed on has changed
        a store that had its turn: an offset must not be committed before what its record caused.
        """
        for _ in range(_MOST_FLUSHES):
            for store in self.stores.names:
                self._executor.flush(store)
                self.stores.flush_silently(store)
            if not self.stores.have_changes:
                break
        else:
            self._write_unsettled()
        self.stores.log_changes()

    def _write_unsettled(self) -> None:
        """Follows what a store without a cache does: only its own node's changes are forwarded."""
        stores = self.stores.write_held_back()
        if not self._warned_of_circle:
            self._warned_of_circle = True
            logger.warning(
                "task %s: store %s has changed %d times while its changes were handed on: a "
                "processor downstream puts into a store upstream of it. Its last changes are "
                "written, but not forwarded; let the processor leave out puts that change nothing",
                self.task_id,
                ", ".join(stores),
                _MOST_FLUSHES,
            )

    def offsets_to_commit(self) -> dict[TopicPartition, CommitOffset]:
        """Where to go on after a restart, for each partition that was read."""
        offsets: dict[TopicPartition, CommitOffset] = {}
        for place, queue in self._group.queues.items():
            offset = queue.next_offset()
            if offset is not None:
                metadata = CommitMetadata(queue.partition_time, self._engine_task.remembered)
                epoch = queue.leader_epoch()
                offsets[place] = CommitOffset(offset, metadata.encode(), epoch)
        return offsets

    def post_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], acked: Mapping[TopicPartition, int]
    ) -> None:
        """The offsets are committed: let the stores write what they stand for.

        Args:
            offsets: what was committed, of other tasks as well.
            acked: the last acknowledged offset of each changelog partition that the thread's
                producer has written, perhaps when it owned the task some time before.
        """
        reached = self.stores.changelog_offsets()
        known = {place: acked[place] for place in reached if place in acked}
        for place in self._group.queues:
            if place in reached and place in offsets:
                # The topic of a table that has no other changelog.
                known[place] = offsets[place].offset - 1
        self.stores.commit(
            {
                place: offset
                for place, offset in known.items()
                if (before := reached[place]) is None or offset > before
            }
        )
        for place in self._group.queues:
            if place in offsets:
                self.committed[place] = offsets[place].offset
        self.commit_needed = False
        self._engine_task.commit_requested = False

    def suspend(self) -> None:
        """Stop processing, with the stores left open. Everything must have been committed."""
        self._state.transition_to(TaskState.SUSPENDED, "revoked")
        self._stop()

    def demote(self) -> None:
        """Let a suspended task follow its changelogs as a standby, with the stores it has open."""
        self.stores.recycle()
        self._state.transition_to(TaskState.RESTORING, "now a standby")

    @property
    def has_run(self) -> bool:
        """Whether the task has processed: its operators cannot be started a second time."""
        return self._has_run

    def _stop(self) -> None:
        try:
            self._executor.close()
        finally:
            self._group.clear()
            self._punctuations.clear()

    def close(self, *, clean: bool) -> None:
        """Give the task up. Uncommitted work must have been committed before, or it is lost.

        Args:
            clean: whether the state on disk stands for what was committed; if not, what was not
                committed is dropped and comes back from the changelog.
        """
        if self.state is TaskState.CLOSED:
            return
        running = self.state is TaskState.RUNNING
        if self.state is not TaskState.SUSPENDED:
            self._state.transition_to(TaskState.SUSPENDED, "clean" if clean else "not committed")
        try:
            if running:
                self._stop()
        finally:
            self._group.clear()
            self._punctuations.clear()
            self.stores.close(clean=clean)
            self._state.transition_to(TaskState.CLOSED, "given up")

    def fail(self, error: Exception) -> StreamsError:
        """The error with this task as its place, and the line that declared its node."""
        if isinstance(error, StreamsError):
            if error.task_id is None:
                error.task_id = self.task_id
            if error.declared_at is None:
                error.declared_at = self._executor.declared_at(error.node)
            return error
        failure = StreamsError(
            f"Task {self.task_id} failed: {type(error).__name__}: {error}.", task_id=self.task_id
        )
        failure.__cause__ = error
        return failure

    def _log_state(self, new: TaskState, old: TaskState, why: str) -> None:
        logger.info("task %s: %s to %s (%s)", self.task_id, old.name, new.name, why)
