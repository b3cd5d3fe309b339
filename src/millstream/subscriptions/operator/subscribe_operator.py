"""The operator of a subscription: runs the tasks of one partition concurrently."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final

from millstream.async_checks import checked_effect
from millstream.operators.concurrent.concurrent_calls import Call
from millstream.operators.concurrent.concurrent_operator import ConcurrentOperator
from millstream.operators.concurrent.coroutine_runner import as_failure
from millstream.operators.operator import OperatorContext, Output
from millstream.operators.record_batch import Batch, Origin
from millstream.record import TopicPartition
from millstream.subscriptions.operator.admission import Admission
from millstream.subscriptions.operator.outgoing_tasks import UNREADABLE, OutgoingTasks
from millstream.subscriptions.operator.pending_tasks import PendingTasks
from millstream.subscriptions.operator.queued_tasks import QueuedTasks
from millstream.subscriptions.operator.task_calls import NOT_STARTED, TaskCalls
from millstream.subscriptions.operator.task_host import CompletionDeadlines, PartitionHost
from millstream.subscriptions.operator.task_reader import TaskBatchReader, TaskList
from millstream.subscriptions.operator.task_results import TaskResultHandler
from millstream.subscriptions.processing_context import ProcessingContext
from millstream.subscriptions.properties.subscription_properties import Properties
from millstream.subscriptions.rate_limited_log import RateLimitedLog
from millstream.subscriptions.subscription_plan import SubscriptionPart
from millstream.subscriptions.tasks.decaton_metadata import DecatonMetadata
from millstream.subscriptions.tasks.task_extraction import DecatonTask
from millstream.subscriptions.tracing import TaskTraces

logger = logging.getLogger(__name__)

_NS_IN_MS: Final = 1_000_000
#: How long queued tasks are processed inline before control returns to the loop.
_INLINE_BUDGET_NS: Final = 200 * _NS_IN_MS


class SubscribeOperator(ConcurrentOperator):
    """Processes a partition's tasks concurrently, but those of each key in order.

    Plain functions run on threads, or inline in the loop at a concurrency of 1; `async` functions
    run on the event loop of the process. A task is in flight from when it is read until it is
    completed, and takes about 700 bytes in addition to its record.

    Semantics: Decaton's `PartitionContext` and `ProcessorUnit`.
    """

    def __init__(self, part: SubscriptionPart) -> None:
        self._part = part
        self._plan = part.plan
        self._properties = part.plan.properties
        self._version = 0
        #: The number of calls that have been started and have not ended.
        self._calls_in_flight = 0
        #: Tasks whose retry or dead letter has not been acknowledged yet, by offset.
        self._unacknowledged: dict[int, ProcessingContext] = {}
        #: Tasks whose retry or dead letter has been acknowledged.
        self._acknowledged: list[ProcessingContext] = []
        self._latest_offset = -1
        self._is_rebuilding = False
        self._traces: TaskTraces | None = None

    # --- operator interface ----------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        return len(self._pending) + len(self._queued)

    @property
    def max_pending(self) -> int:
        """The maximum number of pending records.

        Completed records behind an incomplete one count as pending.
        """
        return self._properties.max_pending_records

    @property
    def remaining_capacity(self) -> int:
        self._sync_properties()
        if self._is_rebuilding or self._admission.is_stopped:
            return 0
        return max(
            0, self._properties.max_pending_records - self.in_flight - len(self._unacknowledged)
        )

    @property
    def has_completions(self) -> bool:
        units = self._task_calls.units
        if (
            self._host.completed
            or self._acknowledged
            or (units is not None and units.has_completed)
        ):
            return True
        if self._queued.may_start(self._free_call_slots):
            return True
        return self._deadlines.are_due or self._pending.is_check_due

    @property
    def awaits_delivery(self) -> bool:
        return bool(self._unacknowledged)

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        partition = self._partition = TopicPartition(self._part.topic, context.task_id.partition)
        self._thread_state = self.runner_context.subscription_state
        self._metrics = self._thread_state.metrics.for_partition(partition)
        clock = self._clock = context.clock
        if self._thread_state.properties is not None:
            self._properties = self._thread_state.properties
            self._version = self._thread_state.version
        if self._plan.tracing is not None:
            self._traces = TaskTraces(self._plan.tracing, self._plan.name, clock)
        self._task_calls = TaskCalls(
            partition, self._plan, self._thread_state, self.runner_context.runners, self._traces
        )
        self._pending = PendingTasks(clock)
        log = RateLimitedLog(logger, clock)
        self._reader = TaskBatchReader(self._part, partition, self._metrics, log, context.failed)
        self._deadlines = CompletionDeadlines(clock)
        self._host = PartitionHost(
            self._plan.name,
            self._plan.key,
            clock,
            self._part.retries is not None,
            lambda: self._properties.deferred_complete_timeout_ms,
            self._deadlines,
            self._metrics,
            self.runner_context.runners.notify,
        )
        self._outgoing = OutgoingTasks(
            self._part,
            context.task_id,
            clock,
            lambda: self._properties.retry_task_in_legacy_format,
            self._traces,
        )
        self._admission = Admission(self._part, self._properties, clock)
        # Retried tasks are already out of order.
        in_order = self._part.role != "retry"
        self._queued = QueuedTasks(clock, self._admission, keeps_order=in_order)
        self._result_handler = TaskResultHandler(
            self._part, self._outgoing, self._metrics, log, context.failed
        )

    def process(self, batch: Batch, output: Output) -> None:
        if not self._task_calls.are_created:
            self._task_calls.create_units(self._properties.partition_concurrency)
            self._thread_state.metrics.add_gauges(self._partition, self._gauges)
        self._latest_offset = batch.origin.offsets[batch.rows[-1]]
        self._metrics.count("records.consumed", len(batch))
        batch = self._admission.admitted(batch, self._outgoing, self._metrics, output)
        if not batch.keys:
            return
        tasks, unreadable = self._reader.read(batch, self._properties)
        if unreadable:
            self._add_unreadable(batch, unreadable)
        if self._task_calls.units is None:
            self._run_inline(batch, tasks, output)
        else:
            contexts = self._contexts(batch, tasks)
            if self._traces is not None:
                self._traces.begin(contexts)
            self._start(batch, contexts)

    def on_delivered(self) -> None:
        """Handle the delivery of retries and dead letters.

        If a retry or dead letter was rejected, its task is restarted after a backoff.
        """
        rejected = self.runner_context.rejected_tasks
        sent, self._unacknowledged = self._unacknowledged, {}
        for offset, context in sent.items():
            if (context.place, offset) in rejected:
                self._restart_rejected(context)
            else:
                self._acknowledged.append(context)
        rejected.clear()

    def halt(self) -> None:
        self._host.halt()
        self._queued.is_paused = True
        self._task_calls.halt()

    @property
    def can_finish(self) -> bool:
        """Whether tasks may still be completed before the partition is released.

        Tasks that wait for their scheduled time or for the rate limit are left to the next owner.
        A halted partition does not wait for deferred tasks.
        """
        if self._host.is_processing or self.has_completions:
            return True
        if not self._host.is_halted:
            return len(self._pending) > 0
        return self._task_calls.units is not None and self._task_calls.units.is_running

    def release(self, output: Output) -> Sequence[Batch]:
        self._pending.log_oldest()
        self._metrics.count("tasks.timeout", self._deadlines.expire())
        if self._task_calls.units is None and not self._host.completed and not self._acknowledged:
            # The results are handled in the next call, so that the loop can continue in between.
            if self._queued.may_start(None):
                self._start_queued_inline()
            return ()
        done = self._take_completed()
        if self._queued and self._task_calls.units is not None:
            self._start_queued()
        if done:
            self._pending.remove(done)
            done = self._handle_results(done, output)
        if self._acknowledged:
            done += self._acknowledged
            self._acknowledged = []
        if not done:
            return ()
        if self._traces is not None:
            self._traces.complete(done)
        size, nulls = len(done), [None] * len(done)
        origin = Origin(self._partition, [context.offset for context in done])
        return [Batch(nulls, nulls, [0] * size, range(size), origin)]

    def close(self) -> None:
        """Close the operator.

        The results of running calls are ignored, and the next owner of the partition processes the
        tasks in flight again.
        """
        self._host.halt()
        self._host.is_closed = True
        self._task_calls.close()
        self._thread_state.metrics.remove_gauges(self._partition)

    # --- taking records --------------------------------------------------------------------------

    def _gauges(self) -> Mapping[str, float]:
        return {
            "tasks.pending": self.in_flight + len(self._unacknowledged),
            "tasks.pending.age.max": self._pending.oldest_age_ms,
            "partition.paused": int(self.remaining_capacity <= 0),
            "offset.latest.consumed": self._latest_offset,
        }

    def _add_unreadable(self, batch: Batch, unreadable: Iterable[tuple[int, Exception]]) -> None:
        for index, error in unreadable:
            task: DecatonTask[Any] = DecatonTask(DecatonMetadata(), None, batch.values[index])
            context = ProcessingContext(self._host, batch, index, task, (), perf_counter_ns())
            context.outcome, context.error = UNREADABLE, error
            self._track_pending(context)
            self._host.completed.append(context)

    def _contexts(self, batch: Batch, tasks: TaskList) -> list[ProcessingContext]:
        calls, now_ns = self._task_calls.calls, perf_counter_ns()
        return [
            ProcessingContext(self._host, batch, index, task, calls, now_ns)
            for index, task in enumerate(tasks)
            if task is not None
        ]

    def _start(self, batch: Batch, contexts: Sequence[ProcessingContext]) -> None:
        add, queued = self.runner_context.in_flight_records.add_one, self._queued
        now_ms, may_start_now = self._clock.now_ms(), self._queued.may_start_now(batch.keys)
        due: list[Call] = []
        latencies: list[int] = []
        for context in contexts:
            add(context.place, context.offset)
            if (created_ms := context.metadata.timestamp_ms) > 0:
                latencies.append(now_ms - created_ms)
            scheduled_ms = context.metadata.scheduled_time_ms
            call = Call(batch, context.index, None, context)
            if may_start_now and scheduled_ms <= now_ms:
                due.append(call)
            elif queued.queue_if_blocked(call, scheduled_ms):
                may_start_now = False
            else:
                due.append(call)
        self._metrics.measure_all("tasks.delivery.latency", latencies)
        for call in due:
            call.unit = self._task_calls.unit_for(call.context.raw_key)
        self._start_calls(due)

    def _start_calls(self, calls: Sequence[Call]) -> None:
        if calls:
            assert self._task_calls.units is not None
            self._pending.add(call.context for call in calls)
            self._calls_in_flight += len(calls)
            self._task_calls.units.start(calls)

    def _restart_rejected(self, rejected: ProcessingContext) -> None:
        """Restart a task after a backoff because its retry or dead letter was rejected."""
        policy = self._plan.retry
        assert policy is not None
        metadata = rejected.metadata
        task = DecatonTask(metadata, rejected.task, rejected.payload)
        context = ProcessingContext(
            self._host,
            rejected.batch,
            rejected.index,
            task,
            self._task_calls.calls,
            perf_counter_ns(),
        )
        if rejected.outcome == UNREADABLE:
            context.outcome, context.error = UNREADABLE, rejected.error
        elif self._traces is not None:
            self._traces.complete((rejected,))
            self._traces.begin((context,))
        call = Call(context.batch, context.index, None, context)
        pause_ms = policy.pause_ms(metadata.retry_count)
        self._queued.queue_until(call, self._clock.now_ms() + pause_ms)

    @property
    def _free_call_slots(self) -> int | None:
        """The number of calls that may start; None if it is not limited.

        Without a rate limit, the units queue the calls that cannot run yet. Inline calls run one
        at a time.
        """
        if self._task_calls.units is None or not self._admission.is_limited:
            return None
        return self._properties.partition_concurrency - self._calls_in_flight

    def _start_queued(self) -> None:
        self._metrics.measure_all("tasks.scheduled.process.delay", self._queued.release_due())
        calls = self._queued.take(self._free_call_slots, self._task_calls.unit_for)
        now_ns = perf_counter_ns()
        unreadable: list[Call] = []
        for call in calls:
            call.context.taken_ns = now_ns
            if call.context.outcome == UNREADABLE:
                unreadable.append(call)
        if unreadable:
            self._queued.release_units_of(unreadable)
            contexts = [call.context for call in unreadable]
            self._pending.add(contexts)
            self._host.completed.extend(contexts)
            calls = [call for call in calls if call.context.outcome != UNREADABLE]
        self._start_calls(calls)

    def _start_queued_inline(self) -> None:
        """Process queued tasks inline, for a limited time."""
        self._metrics.measure_all("tasks.scheduled.process.delay", self._queued.release_due())
        ends_ns = perf_counter_ns() + _INLINE_BUDGET_NS
        while calls := self._queued.take(1, lambda _: None):
            context: ProcessingContext = calls[0].context
            context.taken_ns = perf_counter_ns()
            self._pending.add((context,))
            if context.outcome == UNREADABLE or self._task_calls.run(context):
                self._host.completed.append(context)
            if perf_counter_ns() > ends_ns:
                break
        self.runner_context.runners.notify()

    # --- running tasks ---------------------------------------------------------------------------

    def _run_inline(self, batch: Batch, tasks: TaskList, output: Output) -> None:
        """Process tasks inline. Takes 1 us per task in addition to the function."""
        calls, traces = self._task_calls.calls, self._traces
        first = calls[0]
        now_ms = self._clock.now_ms()
        metadata_list = [task.metadata for task in tasks if task is not None]
        latencies = [now_ms - each.timestamp_ms for each in metadata_list if each.timestamp_ms > 0]
        self._metrics.measure_all("tasks.delivery.latency", latencies)
        latest_ms = max([metadata.scheduled_time_ms for metadata in metadata_list], default=0)
        if latest_ms > now_ms or not self._queued.may_start_now(batch.keys):
            tasks = self._without_queued(batch, tasks)
        not_plain: list[ProcessingContext] = []
        count, longest_ns, not_plain_ns = 0, 0, 0
        started_ns = now_ns = perf_counter_ns()
        for index, task in enumerate(tasks):
            if task is None:
                continue
            # Created one at a time, so that each context can reuse the memory of the previous one.
            context = ProcessingContext(self._host, batch, index, task, calls, now_ns)
            if traces is not None:
                traces.begin((context,))
            try:
                if (result := first(context, context.task)) is not None:
                    checked_effect(result)
            except (Exception, CancelledError) as error:
                context.returned(as_failure(error))
            before_ns, now_ns = now_ns, perf_counter_ns()
            if not context.is_plain:
                context.took_ns = now_ns - before_ns
                not_plain_ns += context.took_ns
                not_plain.append(context)
                continue
            if now_ns - before_ns > longest_ns:
                longest_ns = now_ns - before_ns
            count += 1
            if traces is not None:
                traces.complete((context,))
        metrics = self._metrics
        took_ms = (now_ns - started_ns - not_plain_ns) / _NS_IN_MS
        longest_ms = longest_ns / _NS_IN_MS
        metrics.measure("tasks.process.duration", count, took_ms, longest_ms)
        metrics.measure("tasks.complete.duration", count, took_ms, longest_ms)
        metrics.count("tasks.processed", count)
        if not_plain:
            self._handle_inline_results(not_plain, output)

    def _without_queued(self, batch: Batch, tasks: TaskList) -> list[DecatonTask[Any] | None]:
        """Return the tasks that may start now, and queue the others."""
        due = list(tasks)
        for context in self._contexts(batch, tasks):
            call = Call(batch, context.index, None, context)
            if self._queued.queue_if_blocked(call, context.metadata.scheduled_time_ms):
                due[context.index] = None
                if self._traces is not None:
                    self._traces.begin((context,))
                self.runner_context.in_flight_records.add_one(context.place, context.offset)
        return due

    def _handle_inline_results(
        self, not_plain: Sequence[ProcessingContext], output: Output
    ) -> None:
        """Handle tasks that were deferred, requested a retry, or failed."""
        done: list[ProcessingContext] = []
        for context in not_plain:
            if context.outcome != "fail" and not context.returned(None):
                self._track_pending(context)
            else:
                done.append(context)
        if self._host.completed:
            # Earlier tasks, possibly of the same keys, have completed and must be handled first.
            for context in done:
                self._track_pending(context)
            self._host.completed.extend(done)
            return
        finished = self._handle_results(done, output)
        if self._traces is not None:
            self._traces.complete(finished)
        for context in done:
            if context.offset in self._unacknowledged:
                self.runner_context.in_flight_records.add_one(context.place, context.offset)

    def _track_pending(self, context: ProcessingContext) -> None:
        self._pending.add((context,))
        self.runner_context.in_flight_records.add_one(context.place, context.offset)

    # --- results ---------------------------------------------------------------------------------

    def _take_completed(self) -> list[ProcessingContext]:
        completed = self._host.completed
        done = [completed.popleft() for _ in range(len(completed))]
        not_started: list[Call] = []
        if self._task_calls.units is not None:
            calls = self._task_calls.units.take_completed()
            self._calls_in_flight -= len(calls)
            for call in calls:
                if call.error is not None:
                    # An internal error, not an error of the user's function.
                    raise call.error
                if call.result is NOT_STARTED:
                    not_started.append(call)
                elif call.result:
                    done.append(call.context)
            self._queued.release_units_of(calls)
        if not_started:
            self._pending.remove(call.context for call in not_started)
            self._queued.put_back(not_started)
        return done

    def _handle_results(
        self, done: Sequence[ProcessingContext], output: Output
    ) -> list[ProcessingContext]:
        """Write retries and dead letters. Returns the tasks that are now completed.

        The other tasks wait for the acknowledgment of their retry or dead letter.
        """
        written = self._result_handler.handle(done, output)
        policy = self._plan.retry
        if policy is None or policy.on_send_failure != "keep":
            return list(done)
        self._unacknowledged.update((each.offset, each) for each in written)
        return [each for each in done if each.offset not in self._unacknowledged]

    # --- properties ------------------------------------------------------------------------------

    def _sync_properties(self) -> None:
        """Apply changed properties.

        A new concurrency takes effect when nothing is in flight.
        """
        thread_state = self._thread_state
        if thread_state.version != self._version and thread_state.properties is not None:
            self._version = thread_state.version
            self._apply_properties(thread_state.properties)
        if self._is_rebuilding and not self._pending:
            self._is_rebuilding = False
            self._queued.clear_units()
            self._task_calls.create_units(self._properties.partition_concurrency)
        if self._task_calls.returns_unstarted and not self._calls_in_flight:
            self._task_calls.returns_unstarted = False
        self._queued.is_paused = (
            self._host.is_halted or self._is_rebuilding or self._task_calls.returns_unstarted
        )

    def _apply_properties(self, new: Properties) -> None:
        old, self._properties = self._properties, new
        was_limited = self._admission.is_limited
        self._admission.change(new)
        if was_limited and not self._admission.is_limited:
            self._queued.clear_units()
        elif not was_limited and self._admission.is_limited and self._calls_in_flight:
            # Calls that were passed to the units without a rate limit were not charged. The calls
            # that are not running yet return unstarted and are queued again. To preserve the order
            # of each key, no call starts until the running calls have ended.
            self._task_calls.returns_unstarted = True
        if new.partition_concurrency != old.partition_concurrency and self._task_calls.are_created:
            self._is_rebuilding = True
