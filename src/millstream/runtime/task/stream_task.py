"""One task: a sub-topology at work on one partition number of its input topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from millstream.clock import Clock, Deadline
from millstream.errors import StreamsError, TaskMigratedError
from millstream.kafka.member.events import CommitOffset
from millstream.operators.batch import Batch
from millstream.operators.interruption import BatchInterruptedError
from millstream.processor.punctuation import PunctuationType
from millstream.record import TaskId, TopicPartition
from millstream.runtime.state_machine import StateMachine
from millstream.runtime.states import TASK_STATES, TaskState
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.runtime.task.old_records import OldRecords
from millstream.runtime.task.placed_error import placed
from millstream.runtime.task.processing import Processing
from millstream.runtime.task.punctuations import AT_ONCE, Agenda
from millstream.runtime.task.queues.partition_group import TaskBatch
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.task_meters import TaskMeters
from millstream.runtime.task.time_limits import TimeLimits
from millstream.state.task_stores import TaskStores

logger = logging.getLogger(__name__)

#: How often caches are flushed for one commit until none has changes. Nodes that write only to
#: stores of their own need as many times as stores lie one below the other.
_MOST_FLUSHES = 100
#: How long a wait for the end of any call is at most.
_LANDING_MS = 100


class StreamTask:
    """Reads its partitions, runs its nodes, knows what it has to commit. It is `Work`.

    The task does not commit by itself: its thread commits all tasks together, since they share one
    producer. The order is `prepare_commit`, the producer's flush, `offsets_to_commit`, the commit,
    `post_commit` (design section 2).

    Between being active and being a standby it may go to and fro any number of times: its stores
    stay open, and each time it starts it gets new operators, processors and queues.

    Invariant: an offset is committed only after everything that its record caused was written.

    Args:
        task_id: the task.
        partitions: its input partitions.
        stores: its stores, not yet open.
        make_processing: makes what it needs to process, each time it starts.
        declared_at: file and line of the user's program that declared a node, for errors.
        clock: dates changes of state.
        meters: measure it.
        limits: how long its user code may take.
        old_records: warns of records that changelogs cannot keep; None without a broker.
    """

    def __init__(
        self,
        task_id: TaskId,
        partitions: frozenset[TopicPartition],
        *,
        stores: TaskStores,
        make_processing: Callable[[], Processing],
        declared_at: Callable[[str | None], str | None],
        clock: Clock,
        meters: TaskMeters,
        limits: TimeLimits,
        old_records: OldRecords | None = None,
    ) -> None:
        self.task_id = task_id
        self.partitions = partitions
        self.stores = stores
        self.meters = meters
        self.commit_needed = False
        #: Up to where each input partition is committed, by this task or by who had it before.
        self.committed: dict[TopicPartition, int] = {}
        #: The ids of its topics when it began to read them, as far as they were known.
        self.topic_ids: Mapping[str, str] = {}
        #: Records processed since the task was created.
        self.processed_total = 0
        self._make_processing = make_processing
        self._declared_at = declared_at
        self._clock = clock
        self._processing: Processing | None = None
        self._agenda = Agenda()
        self._limits = limits
        self._old_records = old_records
        self._pace = limits.pace_of(task_id)
        # Records taken since the caches were flushed.
        self._unflushed = 0
        # Whether there was no time for all calls that were due by stream time.
        self._calls_left = False
        self._warned_of_circle = False
        # Whether the loop has found that records may be taken.
        self._may_take = True
        # Whether a commit waits for what is in flight.
        self._is_landing = False
        self._state = StateMachine(
            f"Task {task_id}", TaskState.CREATED, TASK_STATES, clock, self._log_state
        )

    @property
    def state(self) -> TaskState:
        """Where the task is."""
        return self._state.state

    @property
    def buffered(self) -> int:
        """How many records wait."""
        return 0 if self._processing is None else self._processing.group.size

    def waiting_in(self, place: TopicPartition) -> int:
        """How many records of one partition wait."""
        return self.processing.group.queues[place].size

    @property
    def processing(self) -> Processing:
        """What it processes with; there only is such while it runs."""
        assert self._processing is not None, f"task {self.task_id} is {self.state.name}"
        return self._processing

    # --- what it is ----------------------------------------------------------------------------

    def open_stores(self, *, standby: bool = False) -> None:
        """Lock the task's directory and open its stores.

        Args:
            standby: whether it is to follow its changelogs, and not to process.

        Raises:
            LockError: another process holds the directory; try again later.
            TaskCorruptedError: what is on disk cannot be trusted.
        """
        self.stores.open()
        state = TaskState.STANDBY if standby else TaskState.RESTORING
        self._state.transition_to(state, "stores are open")

    def activate(self) -> None:
        """Let a standby or a suspended task restore the rest, to process then."""
        if self.state is TaskState.SUSPENDED:
            self.stores.recycle()
        self._state.transition_to(TaskState.RESTORING, "now active")

    def stand_by(self) -> None:
        """Let a suspended task follow its changelogs, with the stores it has open."""
        self.stores.recycle()
        self._state.transition_to(TaskState.STANDBY, "now a standby")

    def start(
        self,
        committed: Mapping[TopicPartition, CommitOffset | None],
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Begin to process: stores are restored, committed offsets are known.

        Args:
            committed: of each input partition where the group stands.
            topic_ids: the id of each topic, as far as the brokers tell.

        Raises:
            Exception: a storage or a changelog has failed, and init() has hidden the error.
        """
        topics = {place.topic for place in self.partitions}
        self.topic_ids = {t: each for t, each in (topic_ids or {}).items() if t in topics}
        at_work = self._make_processing()
        at_work.punctuations.note_in(self._agenda)
        group = at_work.group
        for place, queue in group.queues.items():
            offset = committed.get(place)
            if offset is not None:
                queue.committed_offset = self.committed[place] = offset.offset
                metadata = CommitMetadata.decode(offset.metadata)
                queue.partition_time = metadata.partition_time
                queue.pending.begin_at(metadata.partition_time)
                group.stream_time = max(group.stream_time, metadata.partition_time)
                at_work.remember(metadata.processors)
        at_work.executor.init()
        self._processing = at_work
        self._unflushed, self._calls_left = 0, False
        self._limits.running += 1
        if self._old_records is not None:
            self._old_records.begin(self.stores)
        self._state.transition_to(TaskState.RUNNING, "restored")
        # Of what processors did in init().
        self.stores.after_work()

    def suspend(self) -> None:
        """Stop what it does, with the stores left open. Everything must have been committed."""
        self._state.transition_to(TaskState.SUSPENDED, "revoked")
        self._stop()

    def close(self, *, clean: bool) -> None:
        """Give the task up. Uncommitted work must have been committed before, or it is lost.

        Args:
            clean: whether the state on disk stands for what was committed; if not, what was not
                committed is dropped and comes back from the changelog.
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
            # Whatever could not be closed: the task can be opened again.
            self._state.transition_to(TaskState.CLOSED, "given up")

    def revive(self) -> None:
        """Let a closed task begin anew."""
        self._state.transition_to(TaskState.CREATED, "revived")

    def _stop(self) -> None:
        at_work, self._processing = self._processing, None
        if self.commit_needed:
            self._limits.given_up(self._pace)
        self.commit_needed = self._is_landing = False
        self.committed = {}
        if at_work is not None:
            self._limits.running -= 1
            at_work.executor.close()

    # --- what it does --------------------------------------------------------------------------

    def add_records(self, place: TopicPartition, records: RawRecords) -> None:
        """Queue the records of a poll."""
        self.processing.group.queues[place].add(records)

    def pass_over(self, place: TopicPartition, offset: int) -> None:
        """Nothing that could be taken is left before an offset of a partition."""
        if self.processing.group.queues[place].pass_over(offset):
            self.commit_needed = True

    def is_processable(self, at_end: Callable[[TopicPartition], bool], max_idle_ms: int) -> bool:
        """Whether the next record may be taken now; see `PartitionGroup.is_ready`."""
        at_work = self.processing
        group, room = at_work.group, self._room
        self._may_take = (
            group.size > 0
            and not self._is_landing
            # A commit may be impossible just now, for example while the group rebalances.
            and not (self.commit_needed and self.stores.needs_commit)
            and (room is None or room > 0)
            and group.is_ready(at_end, max_idle_ms, self._clock.monotonic_ms())
        )
        return self._may_take or self._has_come()

    def _has_come(self) -> bool:
        """Whether anything in flight has come to its end; if not, the next one wakes the loop."""
        at_work = self.processing
        if at_work.executor.has_landed:
            return True
        at_work.equipment.apart.hear()
        return at_work.executor.has_landed

    @property
    def in_flight(self) -> int:
        """How many records are worked on beside the loop."""
        return 0 if self._processing is None else self._processing.executor.in_flight

    def step(self, limit: int) -> int:
        """Take a batch of at most `limit` records through the nodes; how many it was.

        Before it, what has come of records in flight goes on. After each of the two the calls are
        made that are due by stream time: it ends where it reaches the next.

        Raises:
            StreamsError: a record could not be read, or user code failed, and nobody said to go on.
        """
        deadline = Deadline(self._clock, self._limits.calls_ms)
        self._release()
        if self._calls_left and not deadline.passed:
            # The calls by stream time that the last batch has brought about come first.
            self.punctuate_stream_time()
            return 0
        room = self._room
        # Less than none, where one such operator has filled another one.
        if not self._may_take or (room is not None and room <= 0) or deadline.passed:
            return 0
        count = self._process(limit if room is None else min(limit, room))
        if deadline.passed:
            # The calls come first in the next step: the loop polls and commits in between.
            self._note_calls_left()
        else:
            self.punctuate_stream_time()
        self.stores.after_work()
        return count

    @property
    def _room(self) -> int | None:
        """How many records may be taken; None for any number."""
        at_work = self.processing
        room, most = at_work.executor.room, at_work.executor.most_pending
        if room is None or most is None:
            return None
        return min(room, max(0, most - at_work.group.most_pending))

    def drain(self, deadline: Deadline) -> bool:
        """Wait until nothing is in flight, and take nothing meanwhile."""
        at_work = self._processing
        if at_work is None:
            # Revoked before it has begun.
            return True
        while not self._has_landed():
            if deadline.passed:
                return False
            if not self.may_land:
                # The last one may have come to its end in between.
                return self._has_landed()
            at_work.equipment.apart.wait(deadline.remaining_ms(_LANDING_MS))
        return True

    def halt(self) -> None:
        """Begin nothing more of what was taken."""
        self.processing.executor.halt()

    @property
    def may_land(self) -> bool:
        """Whether anything in flight may still be finished."""
        return self.processing.executor.may_land

    def _has_landed(self) -> bool:
        """Whether nothing is in flight, with what is held back handed on, where that matters."""
        self._release()
        if self.in_flight:
            return False
        if self.processing.lands:
            self._hand_on()
        return not self.in_flight

    def _release(self) -> None:
        """Let what has come of records in flight go on, and their offsets be committed."""
        at_work = self.processing
        executor, flights = at_work.executor, at_work.equipment.flights
        deadline = Deadline(self._clock, self._limits.calls_ms)
        while self._has_come() and not deadline.passed:
            done = self._released()
            # What was sent is settled by the next commit.
            self.commit_needed = self.commit_needed or executor.awaits_sent
            if not done:
                return
            self.commit_needed = True
            for batch in done:
                at_work.group.finish(flights.let_go(batch))
            self.punctuate_stream_time()
            self.stores.after_work()

    def _released(self) -> Sequence[Batch]:
        """Let some of what has come of records in flight go on.

        Raises:
            TaskMigratedError: it took too long, and uncommitted work has to be given up.
        """
        executor, time, pace = self.processing.executor, self.processing.equipment.time, self._pace
        if self._limits.limit_ms is None:
            return executor.release()
        most = time.most = pace.released.limit
        began_ms = self._clock.monotonic_ms()
        try:
            with self._limits.watched(executor.calls, divisible=most > 1):
                done = executor.release()
        except BatchInterruptedError:
            took_ms = self._clock.monotonic_ms() - began_ms
            raise self._interrupted("Handing on results of asynchronous calls", took_ms) from None
        pace.released.fit(sum(map(len, done)), most, self._clock.monotonic_ms() - began_ms)
        return done

    def _process(self, most: int) -> int:
        at_work = self.processing
        limit = min(most, self._pace.batch.limit)
        if self._pace.flush.limit is not None:
            # What this batch leaves in the caches goes on with the next commit.
            limit = min(limit, max(1, self._pace.flush.limit - self._unflushed))
        batches = at_work.group.next_batch(
            limit, at_work.punctuations.next_ms(PunctuationType.STREAM_TIME)
        )
        self.commit_needed = True
        if batches is None:
            # What waited was left out: its offsets are to be committed all the same.
            return 0
        count = sum(len(batch) for _, batch in batches)
        took_ms = self._run(batches, count)
        flights = at_work.equipment.flights
        if flights:
            for _, batch in batches:
                at_work.group.finish(flights.not_held(batch))
        else:
            at_work.group.finish_all()
        self.processed_total += count
        self._unflushed += count
        self._pace.batch.fit(count, limit, took_ms)
        return count

    def _run(self, batches: TaskBatch, count: int) -> int:
        """Take a batch through the nodes; how many milliseconds it took.

        Raises:
            TaskMigratedError: it took too long, and uncommitted work has to be given up.
            StreamsError: a single record took too long, again.
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
        if count == 1 and limits.is_over(took_ms):
            origin = next(batch for _, batch in batches if len(batch)).origin
            place, offset = origin.place(0), origin.offsets[0]
            limits.check(
                self._pace,
                (place, offset),
                took_ms,
                f"One record, in node {executor.busiest} most of the time,",
                task_id=self.task_id,
                topic=None if place is None else place.topic,
                partition=None if place is None else place.partition,
                offset=offset,
                node=executor.busiest,
            )
        return took_ms

    def _interrupted(self, what: str, took_ms: int) -> TaskMigratedError:
        """The error that gives uncommitted work up, to begin with single records again."""
        self._pace.restart()
        return TaskMigratedError(
            f"{what} in task {self.task_id} took {took_ms} ms, at last in node "
            f"{self.processing.executor.busiest}, longer than the {self._limits.budget_ms} ms that "
            f"it may take ({self._limits.settings} allow {self._limits.limit_ms} ms), and is "
            "stopped between two records, so that the group and the transaction are not lost. "
            "Uncommitted work is done again, one record at a time at first."
        )

    @property
    def commit_requested(self) -> bool:
        """Whether a processor or a full store asks for a commit, or one waits for what is in
        flight, and there is something to commit."""
        return self.commit_needed and (
            self._is_landing
            or self.processing.engine_task.notes.commit_requested
            or self.stores.needs_commit
            or self._flush_is_due
            or self._pace.commits_each
        )

    @property
    def _flush_is_due(self) -> bool:
        """Whether another record would let the next flush of the caches take too long."""
        most = self._pace.flush.limit
        return most is not None and self._unflushed >= most and self.stores.have_changes

    @property
    def next_wall_clock_ms(self) -> int | None:
        """When the next punctuation by wall clock is due; None if there is none."""
        if self._is_landing:
            return None
        return self.processing.punctuations.next_ms(PunctuationType.WALL_CLOCK_TIME)

    def note_in(self, agenda: Agenda) -> None:
        """Note in this agenda, whenever it runs, when the task is to be punctuated next."""
        self._agenda = agenda

    def punctuate_stream_time(self) -> bool:
        """Make the calls that are due by stream time; whether there were any."""
        at_work = self.processing
        stream_time, behind = at_work.group.stream_time, at_work.equipment.time.stream_time
        called = stream_time >= 0 and self._punctuate(PunctuationType.STREAM_TIME, stream_time)
        if behind < 0:
            return called
        kind = PunctuationType.STREAM_TIME
        called_behind = at_work.behind.run_due(kind, behind, self._call)
        if called_behind:
            self.commit_needed = True
            self.stores.after_work()
        return called or called_behind

    def punctuate_wall_clock_time(self) -> bool:
        """Make the calls that are due by wall clock; whether there were any."""
        # What they cause may be in flight as well, and a commit would never come.
        if self._is_landing:
            return False
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, self._clock.now_ms())

    def _punctuate(self, kind: PunctuationType, now_ms: int) -> bool:
        at_work = self.processing
        deadline = Deadline(self._clock, self._limits.calls_ms)
        called = at_work.punctuations.run_due(kind, now_ms, self._call, deadline)
        if kind is PunctuationType.STREAM_TIME:
            self._note_calls_left()
        self.commit_needed = self.commit_needed or called
        if called:
            self.stores.after_work()
        return called

    def _note_calls_left(self) -> None:
        """Note whether calls by stream time are due, so that they are made before other work."""
        at_work = self.processing
        next_ms = at_work.punctuations.next_ms(PunctuationType.STREAM_TIME)
        self._calls_left = next_ms is not None and next_ms <= at_work.group.stream_time
        if self._calls_left:
            self._agenda.by(AT_ONCE)

    def _call(self, callback: Callable[[int], None], time_ms: int) -> None:
        """Call a punctuator.

        Raises:
            StreamsError: it took longer than the limits, again.
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

    def may_commit(self) -> bool:
        """Whether nothing is in flight that has to be part of a commit. Where that matters, nothing
        is taken from here on until then: other tasks are to land as well, beside this one."""
        at_work = self.processing
        # What a punctuation has caused is repeated by nobody.
        if not self._is_landing:
            self._is_landing = at_work.lands or at_work.equipment.flights.unplaced > 0
        return not self._is_landing or self._has_landed()

    def prepare_commit(self) -> None:
        """After `may_commit`: let go of what caches hold back, with all it causes downstream.

        Store by store in the order of the topology, and again while what was handed on has changed
        a store that had its turn: an offset must not be committed before what its record caused.
        """
        self._hand_on()
        self.stores.log_changes()
        if self._old_records is not None:
            self._old_records.check(self.stores)
        if self._is_landing:
            self._is_landing = False
            # No calls by wall clock were made meanwhile.
            self._agenda.by(AT_ONCE)

    def _hand_on(self) -> None:
        limits, pace, count = self._limits, self._pace, self._unflushed
        began_ms = self._clock.monotonic_ms()
        what = f"Handing on the results of {count} records from the caches"
        try:
            with limits.watched(self.processing.executor.calls, divisible=count > 1):
                self._flush_caches()
        except BatchInterruptedError:
            took_ms = self._clock.monotonic_ms() - began_ms
            raise self._interrupted(what, took_ms) from None
        self._unflushed = 0
        took_ms, flush_ms = self._clock.monotonic_ms() - began_ms, limits.flush_ms
        if count and flush_ms is not None:
            pace.flush.fit(count, took_ms, flush_ms)
        if count < 2:
            node = self.processing.executor.busiest
            what = f"{what}, in node {node} most of the time,"
            limits.check(pace, "flush", took_ms, what, task_id=self.task_id, node=node)

    def _flush_caches(self) -> None:
        executor, progress = self.processing.executor, self._limits.progress
        for _ in range(_MOST_FLUSHES):
            for store in self.stores.names:
                executor.flush(store)
                self.stores.flush_silently(store)
                progress()
            if not self.stores.have_changes:
                break
        else:
            self._write_unsettled()

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

    @property
    def awaits_sent(self) -> bool:
        """Whether records are only finished when what they have sent has arrived."""
        return self.processing.executor.awaits_sent

    def sent(self) -> None:
        """Everything that was sent has arrived, or was refused: finish those records."""
        self.processing.executor.sent()
        self._release()

    def offsets_to_commit(self) -> dict[TopicPartition, CommitOffset]:
        """Where to go on after a restart, for each partition that was read."""
        offsets: dict[TopicPartition, CommitOffset] = {}
        at_work = self.processing
        remembered = at_work.remembered
        for place, queue in at_work.group.queues.items():
            offset = queue.next_offset()
            if offset is not None:
                topic_id = self.topic_ids.get(place.topic)
                metadata = CommitMetadata(
                    queue.pending.time,
                    remembered,
                    frozenset([] if topic_id is None else [topic_id]),
                )
                epoch = queue.leader_epoch()
                offsets[place] = CommitOffset(offset, metadata.encode(), epoch)
        return offsets

    def commit_begun(self) -> None:
        """The offsets are on their way: what comes from now on is for the next commit."""
        # What has come to its end since they were asked for may have sent something.
        self.commit_needed = self.awaits_sent
        self.processing.engine_task.notes.commit_begun()
        self.stores.commit_begun()

    def commit_failed(self) -> None:
        """They were not committed: the next commit has them, too."""
        self.commit_needed = True
        self.processing.engine_task.notes.commit_failed()

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
        for place in self.partitions:
            if place in reached and place in offsets:
                # The topic of a table that has no other changelog.
                known[place] = offsets[place].offset - 1
        moved = {
            place: offset
            for place, offset in known.items()
            if (before := reached[place]) is None or offset > before
        }
        self.stores.commit(moved)
        self._pace.committed()
        for place in self.partitions:
            if place in offsets:
                self.committed[place] = offsets[place].offset

    def fail(self, error: Exception) -> StreamsError:
        """The error with this task as its place, and the line that declared its node."""
        return placed(error, self.task_id, self._declared_at)

    def _log_state(self, new: TaskState, old: TaskState, why: str) -> None:
        logger.info("task %s: %s to %s (%s)", self.task_id, old.name, new.name, why)
