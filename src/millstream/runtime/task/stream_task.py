"""A stream task: a sub-topology for one partition number of its input topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from millstream.clock import Clock, Deadline
from millstream.errors import StreamsError, TaskMigratedError, summary_of
from millstream.kafka.membership.member_events import CommitOffset
from millstream.operators.record_batch import Batch
from millstream.operators.user_calls import BatchInterruptedError
from millstream.processor.punctuation import PunctuationType
from millstream.record import TaskId, TopicPartition
from millstream.runtime.states.thread_states import TASK_TRANSITIONS, StateMachine, TaskState
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.runtime.task.punctuations import IMMEDIATELY, EarliestPunctuation
from millstream.runtime.task.queues.partition_group import TaskBatch
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.retention_check import RetentionCheck
from millstream.runtime.task.task_meters import TaskMeters
from millstream.runtime.task.task_processing import TaskProcessing
from millstream.runtime.task.time_limits import TimeLimits
from millstream.state.task_stores import TaskStores

logger = logging.getLogger(__name__)

#: The maximum number of rounds in which a commit flushes the caches until none has changes. Nodes
#: that write only to their own stores need as many rounds as there are stores on a path.
_MAX_FLUSHES = 100
#: The maximum duration of a single wait for completions.
_COMPLETION_WAIT_MS = 100


class StreamTask:
    """Runs its nodes on records and tracks the offsets to commit.

    The task does not commit by itself: its thread commits all tasks together, because they share
    one producer. The order is `drain` if the task is being released, `prepare_commit`, the
    producer's flush, `offsets_to_commit`, the commit, `on_commit_started`, and, after a successful
    commit, `post_commit`. Records may be taken between the last two steps.

    A task may switch between active and standby any number of times. Its stores stay open, and each
    start creates new operators, processors and queues.

    Invariant: an offset is committed only after all results of its record have been written.

    Args:
        declared_at: returns the file and line where the user's program declared a node, for errors.
        retention_check: warns about records that changelogs do not retain; None without a broker.
    """

    def __init__(
        self,
        task_id: TaskId,
        partitions: frozenset[TopicPartition],
        *,
        stores: TaskStores,
        make_processing: Callable[[], TaskProcessing],
        declared_at: Callable[[str | None], str | None],
        clock: Clock,
        meters: TaskMeters,
        limits: TimeLimits,
        retention_check: RetentionCheck | None = None,
    ) -> None:
        self.task_id = task_id
        self.partitions = partitions
        self.stores = stores
        self.meters = meters
        self.commit_needed = False
        #: The committed offset of each input partition, committed by this task or its previous
        #: owner.
        self.committed: dict[TopicPartition, int] = {}
        #: The ids of the task's topics when it started, if available.
        self.topic_ids: Mapping[str, str] = {}
        #: Records processed since the task was created.
        self.processed_total = 0
        self._make_processing = make_processing
        self._declared_at = declared_at
        self._clock = clock
        self._processing: TaskProcessing | None = None
        self._earliest_punctuation = EarliestPunctuation()
        self._limits = limits
        self._retention_check = retention_check
        self._pace = limits.pace_of(task_id)
        # Records taken since the last flush of the caches.
        self._unflushed = 0
        # Whether stream-time punctuations are still due because a step ran out of time.
        self._punctuations_due = False
        self._warned_about_cycle = False
        # Whether the latest check allowed taking records.
        self._can_take = True
        # Whether a commit is waiting for the records in flight.
        self._is_draining = False
        self._state = StateMachine(
            f"Task {task_id}", TaskState.CREATED, TASK_TRANSITIONS, clock, self._log_state
        )

    @property
    def state(self) -> TaskState:
        return self._state.state

    @property
    def buffered(self) -> int:
        return 0 if self._processing is None else self._processing.group.size

    def buffered_in(self, partition: TopicPartition) -> int:
        return self.processing.group.queues[partition].size

    @property
    def processing(self) -> TaskProcessing:
        """The parts that each start recreates; only available while the task runs."""
        assert self._processing is not None, f"task {self.task_id} is {self.state.name}"
        return self._processing

    # --- lifecycle -----------------------------------------------------------------------------

    def open_stores(self, *, standby: bool = False) -> None:
        """Lock the task's directory and open its stores.

        Raises:
            LockError: another process has locked the directory; try again later.
            TaskCorruptedError: the state on disk is unusable.
        """
        self.stores.open()
        state = TaskState.STANDBY if standby else TaskState.RESTORING
        self._state.transition_to(state, "stores are open")

    def activate(self) -> None:
        """Make a standby or suspended task restore its missing state before it runs."""
        if self.state is TaskState.SUSPENDED:
            self.stores.recycle()
        self._state.transition_to(TaskState.RESTORING, "now active")

    def convert_to_standby(self) -> None:
        """Make a suspended task follow its changelogs with its open stores."""
        self.stores.recycle()
        self._state.transition_to(TaskState.STANDBY, "now a standby")

    def start(
        self,
        committed: Mapping[TopicPartition, CommitOffset | None],
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Start processing. The stores must be restored.

        Brokers older than Kafka 2.8 have no topic ids.

        Raises:
            Exception: a store or changelog failed, and a processor's init() caught the error.
        """
        topics = {partition.topic for partition in self.partitions}
        self.topic_ids = {t: each for t, each in (topic_ids or {}).items() if t in topics}
        processing = self._make_processing()
        processing.punctuations.report_to(self._earliest_punctuation)
        group = processing.group
        for partition, queue in group.queues.items():
            offset = committed.get(partition)
            if offset is not None:
                queue.committed_offset = self.committed[partition] = offset.offset
                metadata = CommitMetadata.decode(offset.metadata)
                queue.partition_time = metadata.partition_time
                queue.pending.start_at(metadata.partition_time)
                group.stream_time = max(group.stream_time, metadata.partition_time)
                processing.restore_processor_metadata(metadata.processors)
        processing.executor.init()
        self._processing = processing
        self._unflushed, self._punctuations_due = 0, False
        self._limits.running += 1
        if self._retention_check is not None:
            self._retention_check.begin(self.stores)
        self._state.transition_to(TaskState.RUNNING, "restored")
        # Processors may have written to stores in init().
        self.stores.after_work()

    def suspend(self) -> None:
        """Stop processing but keep the stores open. All work must be committed."""
        self._state.transition_to(TaskState.SUSPENDED, "revoked")
        self._stop()

    def close(self, *, clean: bool) -> None:
        """Close the task. Uncommitted work is lost.

        If not `clean`, uncommitted changes of the stores are discarded. The next owner restores
        missing changes from the changelogs.
        """
        if self.state is TaskState.CLOSED:
            return
        if self.state is not TaskState.SUSPENDED:
            self._state.transition_to(TaskState.SUSPENDED, "clean" if clean else "not committed")
        try:
            with ExitStack() as closing:
                closing.callback(self.stores.close, clean=clean)
                self._stop()
        finally:
            # The task can be opened again, even if closing failed.
            self._state.transition_to(TaskState.CLOSED, "released")

    def revive(self) -> None:
        self._state.transition_to(TaskState.CREATED, "revived")

    def _stop(self) -> None:
        processing, self._processing = self._processing, None
        if self.commit_needed:
            self._limits.on_work_dropped(self._pace)
        self.commit_needed = self._is_draining = False
        self.committed = {}
        if processing is not None:
            self._limits.running -= 1
            processing.executor.close()

    # --- processing ----------------------------------------------------------------------------

    def add_records(self, partition: TopicPartition, records: RawRecords) -> None:
        self.processing.group.queues[partition].add(records)

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Advance a partition past transaction markers or gaps, up to an offset."""
        if self.processing.group.queues[partition].skip_to(offset):
            self.commit_needed = True

    def is_processable(self, at_end: Callable[[TopicPartition], bool], max_idle_ms: int) -> bool:
        """Return whether `step` has work: a call has completed, or a record may be taken.

        See `PartitionGroup.is_ready`.
        """
        processing = self.processing
        group, capacity = processing.group, self._capacity
        self._can_take = (
            group.size > 0
            and not self._is_draining
            # Too many uncommitted writes: wait for a commit, which a rebalance may delay.
            and not (self.commit_needed and self.stores.needs_commit)
            and (capacity is None or capacity > 0)
            and group.is_ready(at_end, max_idle_ms, self._clock.monotonic_ms())
        )
        return self._can_take or self._has_completions()

    def _has_completions(self) -> bool:
        """Return whether any call has completed.

        If not, the next completion wakes the loop.
        """
        processing = self.processing
        if processing.executor.has_completions:
            return True
        processing.runner_context.runners.clear()
        return processing.executor.has_completions

    @property
    def in_flight(self) -> int:
        return 0 if self._processing is None else self._processing.executor.in_flight

    def step(self, limit: int) -> int:
        """Process a batch of at most `limit` records; return the number of records.

        The results of completed calls are processed first. After these and after the batch, the
        stream-time punctuations that are due run, because a batch ends where the next punctuation
        is due.

        Raises:
            StreamsError: a record failed, and the exception handler did not return CONTINUE.
        """
        deadline = Deadline(self._clock, self._limits.calls_ms)
        self._release_completed()
        if self._punctuations_due and not deadline.passed:
            # Punctuations that became due in the last batch come first.
            self.punctuate_stream_time()
            return 0
        capacity = self._capacity
        # May be negative if one concurrent operator has filled another one.
        if not self._can_take or (capacity is not None and capacity <= 0) or deadline.passed:
            return 0
        count = self._process(limit if capacity is None else min(limit, capacity))
        if deadline.passed:
            # Punctuations come first in the next step: the loop polls and commits in between.
            self._update_punctuations_due()
        else:
            self.punctuate_stream_time()
        self.stores.after_work()
        return count

    @property
    def _capacity(self) -> int | None:
        """The number of records that may be taken; None for any number."""
        processing = self.processing
        executor = processing.executor
        capacity, max_pending = executor.remaining_capacity, executor.max_pending
        if capacity is None or max_pending is None:
            return None
        return min(capacity, max(0, max_pending - processing.group.largest_pending))

    def drain(self, deadline: Deadline) -> bool:
        """Wait until nothing is in flight, without taking records."""
        processing = self._processing
        if processing is None:
            # Revoked before the start.
            return True
        while not self._is_drained():
            if deadline.passed:
                return False
            if not self.can_finish:
                # The last record may have completed in the meantime.
                return self._is_drained()
            processing.runner_context.runners.wait(deadline.remaining_ms(_COMPLETION_WAIT_MS))
        return True

    def halt(self) -> None:
        self.processing.executor.halt()

    @property
    def can_finish(self) -> bool:
        return self.processing.executor.can_finish

    def _is_drained(self) -> bool:
        """Flush the caches if necessary, and return whether nothing is in flight."""
        self._release_completed()
        if self.in_flight:
            return False
        if self.processing.runner_context.drains_before_commit:
            self._flush()
        return not self.in_flight

    def _release_completed(self) -> None:
        """Process the results of completed records, and finish their offsets."""
        processing = self.processing
        executor = processing.executor
        in_flight_records = processing.runner_context.in_flight_records
        deadline = Deadline(self._clock, self._limits.calls_ms)
        while self._has_completions() and not deadline.passed:
            done = self._release_some()
            # The next commit completes the records that wait for deliveries.
            self.commit_needed = self.commit_needed or executor.awaits_delivery
            if not done:
                return
            self.commit_needed = True
            for batch in done:
                processing.group.finish(in_flight_records.remove(batch))
            self.punctuate_stream_time()
            self.stores.after_work()

    def _release_some(self) -> Sequence[Batch]:
        """Process some results of completed records. Raises the same errors as `_run`."""
        executor, pace = self.processing.executor, self._pace
        time = self.processing.runner_context.downstream_time
        if self._limits.limit_ms is None:
            return executor.release()
        max_records = time.max_records = pace.released.limit
        began_ms = self._clock.monotonic_ms()
        try:
            with self._limits.watched(executor.calls, divisible=max_records > 1):
                done = executor.release()
        except BatchInterruptedError:
            took_ms = self._clock.monotonic_ms() - began_ms
            raise self._interrupted("Emitting results of asynchronous calls", took_ms) from None
        pace.released.adapt(sum(map(len, done)), max_records, self._clock.monotonic_ms() - began_ms)
        return done

    def _process(self, max_records: int) -> int:
        processing = self.processing
        limit = min(max_records, self._pace.batch.limit)
        if self._pace.flush.limit is not None:
            # The next commit flushes the results that this batch leaves in the caches.
            limit = min(limit, max(1, self._pace.flush.limit - self._unflushed))
        batches = processing.group.next_batch(
            limit, processing.punctuations.next_ms(PunctuationType.STREAM_TIME)
        )
        self.commit_needed = True
        if batches is None:
            # All queued records were dropped: commit their offsets anyway.
            return 0
        count = sum(len(batch) for _, batch in batches)
        took_ms = self._run(batches, count)
        in_flight_records = processing.runner_context.in_flight_records
        if in_flight_records:
            for _, batch in batches:
                processing.group.finish(in_flight_records.not_in_flight(batch))
        else:
            processing.group.finish_all()
        self.processed_total += count
        self._unflushed += count
        self._pace.batch.adapt(count, limit, took_ms)
        return count

    def _run(self, batches: TaskBatch, count: int) -> int:
        """Run the nodes on a batch; return the duration in milliseconds.

        Raises:
            TaskMigratedError: the batch took too long, so uncommitted work must be dropped.
            StreamsError: a single record took too long for the second time.
        """
        executor, limits = self.processing.executor, self._limits
        started_ms = self._clock.monotonic_ms()
        try:
            with limits.watched(executor.calls, divisible=count > 1):
                executor.run(batches)
        except BatchInterruptedError:
            took_ms = self._clock.monotonic_ms() - started_ms
            raise self._interrupted(f"A batch of {count} records", took_ms) from None
        took_ms = self._clock.monotonic_ms() - started_ms
        if count == 1 and limits.is_exceeded(took_ms):
            origin = next(batch for _, batch in batches if len(batch)).origin
            partition, offset = origin.place(0), origin.offsets[0]
            limits.check(
                self._pace,
                (partition, offset),
                took_ms,
                f"One record, in node {executor.busiest} most of the time,",
                task_id=self.task_id,
                topic=None if partition is None else partition.topic,
                partition=None if partition is None else partition.partition,
                offset=offset,
                node=executor.busiest,
            )
        return took_ms

    def _interrupted(self, what: str, took_ms: int) -> TaskMigratedError:
        """Restart with single records; return the error that drops uncommitted work."""
        self._pace.restart()
        return TaskMigratedError(
            f"{what} in task {self.task_id} took {took_ms} ms, most recently in node "
            f"{self.processing.executor.busiest}, and was stopped between two records after the "
            f"maximum of {self._limits.budget_ms} ms (limit: {self._limits.limit_ms} ms, "
            f"{self._limits.settings}), so that the thread keeps its group membership and "
            "transaction. Uncommitted work is repeated, starting with single records."
        )

    @property
    def commit_requested(self) -> bool:
        """Whether there is uncommitted work and a commit was requested.

        Commits are requested by processors, full stores, cache flushes that are due, batches after
        dropped work, and a commit that waits for records in flight.
        """
        return self.commit_needed and (
            self._is_draining
            or self.processing.node_context.commit_state.commit_requested
            or self.stores.needs_commit
            or self._flush_is_due
            or self._pace.commits_each
        )

    @property
    def _flush_is_due(self) -> bool:
        """Whether the next cache flush could take too long with one more record."""
        limit = self._pace.flush.limit
        return limit is not None and self._unflushed >= limit and self.stores.has_cached_changes

    @property
    def next_wall_clock_ms(self) -> int | None:
        """The time of the next wall-clock punctuation; None if there is none."""
        if self._is_draining:
            return None
        return self.processing.punctuations.next_ms(PunctuationType.WALL_CLOCK_TIME)

    def report_to(self, earliest_punctuation: EarliestPunctuation) -> None:
        self._earliest_punctuation = earliest_punctuation

    def punctuate_stream_time(self) -> bool:
        """Run the stream-time punctuations that are due; return whether there were any."""
        processing = self.processing
        stream_time = processing.group.stream_time
        downstream_time = processing.runner_context.downstream_time.stream_time
        called = stream_time >= 0 and self._punctuate(PunctuationType.STREAM_TIME, stream_time)
        if downstream_time < 0:
            return called
        kind = PunctuationType.STREAM_TIME
        called_downstream = processing.downstream_punctuations.run_due(
            kind, downstream_time, self._call_punctuator
        )
        if called_downstream:
            self.commit_needed = True
            self.stores.after_work()
        return called or called_downstream

    def punctuate_wall_clock_time(self) -> bool:
        """Run the wall-clock punctuations that are due; return whether there were any."""
        # Records that punctuators forward could be in flight in turn and delay the commit forever.
        if self._is_draining:
            return False
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, self._clock.now_ms())

    def _punctuate(self, kind: PunctuationType, now_ms: int) -> bool:
        processing = self.processing
        deadline = Deadline(self._clock, self._limits.calls_ms)
        called = processing.punctuations.run_due(kind, now_ms, self._call_punctuator, deadline)
        if kind is PunctuationType.STREAM_TIME:
            self._update_punctuations_due()
        self.commit_needed = self.commit_needed or called
        if called:
            self.stores.after_work()
        return called

    def _update_punctuations_due(self) -> None:
        """Update whether stream-time punctuations are due; they run before other work."""
        processing = self.processing
        next_ms = processing.punctuations.next_ms(PunctuationType.STREAM_TIME)
        self._punctuations_due = next_ms is not None and next_ms <= processing.group.stream_time
        if self._punctuations_due:
            self._earliest_punctuation.include(IMMEDIATELY)

    def _call_punctuator(self, callback: Callable[[int], None], time_ms: int) -> None:
        """Call a punctuator.

        Raises StreamsError if it takes too long for the second time.
        """
        limits, began_ms = self._limits, self._clock.monotonic_ms()
        self.processing.executor.punctuate(callback, time_ms)
        node = getattr(callback, "node", None)
        limits.check(
            self._pace,
            ("punctuator", node),
            self._clock.monotonic_ms() - began_ms,
            f"A punctuator of node {node}, with everything it forwarded,",
            task_id=self.task_id,
            node=node,
        )
        limits.progress()

    def can_commit(self) -> bool:
        """Return whether the task can commit now.

        If the commit must wait for records in flight, the task takes no more records after the
        first call, so that the tasks of the thread drain at the same time.
        """
        processing = self.processing
        # Punctuations are not repeated after a failure, so the commit waits for the records in
        # flight that punctuations have forwarded.
        if not self._is_draining:
            self._is_draining = (
                processing.runner_context.drains_before_commit
                or processing.runner_context.in_flight_records.from_punctuations > 0
            )
        return not self._is_draining or self._is_drained()

    def prepare_commit(self) -> None:
        """Flush the caches and process the results downstream, after `can_commit`.

        The stores are flushed in topology order, and again if results have changed a store that was
        already flushed: an offset must not be committed before all results of its record.
        """
        self._flush()
        self.stores.log_changes()
        if self._retention_check is not None:
            self._retention_check.check(self.stores)
        if self._is_draining:
            self._is_draining = False
            # Wall-clock punctuations were postponed.
            self._earliest_punctuation.include(IMMEDIATELY)

    def _flush(self) -> None:
        limits, pace, count = self._limits, self._pace, self._unflushed
        began_ms = self._clock.monotonic_ms()
        what = f"Flushing the results of {count} records from the caches"
        try:
            with limits.watched(self.processing.executor.calls, divisible=count > 1):
                self._flush_caches()
        except BatchInterruptedError:
            took_ms = self._clock.monotonic_ms() - began_ms
            raise self._interrupted(what, took_ms) from None
        self._unflushed = 0
        took_ms, flush_ms = self._clock.monotonic_ms() - began_ms, limits.flush_ms
        if count and flush_ms is not None:
            pace.flush.adapt(count, took_ms, flush_ms)
        if count < 2:
            node = self.processing.executor.busiest
            what = f"{what}, in node {node} most of the time,"
            limits.check(pace, "flush", took_ms, what, task_id=self.task_id, node=node)

    def _flush_caches(self) -> None:
        executor, progress = self.processing.executor, self._limits.progress
        for _ in range(_MAX_FLUSHES):
            for store in self.stores.names:
                executor.flush(store)
                self.stores.flush_cache(store)
                progress()
            if not self.stores.has_cached_changes:
                break
        else:
            self._write_without_forwarding()

    def _write_without_forwarding(self) -> None:
        """Write the remaining changes without forwarding them."""
        stores = self.stores.write_cached_changes()
        if not self._warned_about_cycle:
            self._warned_about_cycle = True
            logger.warning(
                "task %s: store %s changed %d times while its changes were forwarded: a processor "
                "downstream writes to a store upstream of it. The last changes are written, but "
                "not forwarded; the processor should skip writes that change nothing",
                self.task_id,
                ", ".join(stores),
                _MAX_FLUSHES,
            )

    @property
    def awaits_delivery(self) -> bool:
        """Whether records only finish once their outputs have been delivered."""
        return self.processing.executor.awaits_delivery

    def on_delivered(self) -> None:
        """Finish the records that waited for deliveries.

        Called when all sent records have been delivered or rejected.
        """
        self.processing.executor.on_delivered()
        self._release_completed()

    def offsets_to_commit(self) -> dict[TopicPartition, CommitOffset]:
        """Return the offset to resume from, for each partition that was read."""
        offsets: dict[TopicPartition, CommitOffset] = {}
        processing = self.processing
        processor_metadata = processing.processor_metadata
        for partition, queue in processing.group.queues.items():
            offset = queue.next_offset()
            if offset is not None:
                topic_id = self.topic_ids.get(partition.topic)
                metadata = CommitMetadata(
                    queue.pending.time,
                    processor_metadata,
                    frozenset([] if topic_id is None else [topic_id]),
                )
                epoch = queue.leader_epoch()
                offsets[partition] = CommitOffset(offset, metadata.encode(), epoch)
        return offsets

    def on_commit_started(self) -> None:
        """Record that the offsets are being committed.

        Later work belongs to the next commit.
        """
        # Records that have completed since the flush may have sent outputs.
        self.commit_needed = self.awaits_delivery
        self.processing.node_context.commit_state.on_commit_started()
        self.stores.on_commit_started()

    def commit_failed(self) -> None:
        """Record that the commit failed: the next commit includes its offsets."""
        self.commit_needed = True
        self.processing.node_context.commit_state.commit_failed()

    def post_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], acked: Mapping[TopicPartition, int]
    ) -> None:
        """Write the stores with their changelog offsets, after the commit.

        Args:
            offsets: the committed offsets, including those of other tasks.
            acked: the last acknowledged offset of each changelog partition that the thread's
                producer has written, possibly while the thread owned the task earlier.
        """
        reached = self.stores.changelog_offsets()
        known = {partition: acked[partition] for partition in reached if partition in acked}
        for partition in self.partitions:
            if partition in reached and partition in offsets:
                # The source topic of a table is its changelog.
                known[partition] = offsets[partition].offset - 1
        moved = {
            partition: offset
            for partition, offset in known.items()
            if (before := reached[partition]) is None or offset > before
        }
        self.stores.commit(moved)
        self._pace.committed()
        for partition in self.partitions:
            if partition in offsets:
                self.committed[partition] = offsets[partition].offset

    @contextmanager
    def located_errors(self) -> Iterator[None]:
        """Convert errors in the block to StreamsErrors that contain the task."""
        try:
            yield
        except Exception as error:
            failure = self.with_location(error)
            raise failure from failure.__cause__

    def with_location(self, error: Exception) -> StreamsError:
        """Return the error with this task and the line that declared the node.

        A `StreamsError` keeps the details that it already has.
        """
        if isinstance(error, StreamsError):
            if error.task_id is None:
                error.task_id = self.task_id
            if error.declared_at is None:
                error.declared_at = self._declared_at(error.node)
            return error
        task_id = self.task_id
        failure = StreamsError(f"Task {task_id} failed: {summary_of(error)}.", task_id=task_id)
        failure.__cause__ = error
        return failure

    def _log_state(self, new: TaskState, old: TaskState, why: str) -> None:
        logger.info("task %s: %s to %s (%s)", self.task_id, old.name, new.name, why)
