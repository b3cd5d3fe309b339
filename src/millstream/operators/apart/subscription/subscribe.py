"""The operator of a subscription: the tasks of one partition, many at a time."""

from __future__ import annotations

import logging
import threading
from asyncio import CancelledError
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from time import perf_counter_ns
from typing import Any, Final

from millstream.clock import Clock
from millstream.kafka.data.record_columns import RecordColumns
from millstream.operators.apart.apart_operator import ApartOperator
from millstream.operators.apart.calls import Call
from millstream.operators.apart.coroutines import as_failure
from millstream.operators.apart.subscription.admission import Admission
from millstream.operators.apart.subscription.deadlines import Deadlines
from millstream.operators.apart.subscription.outgoing import Outgoing
from millstream.operators.apart.subscription.settling import Settling
from millstream.operators.apart.subscription.task_calls import TaskCalls
from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import OperatorContext, Output
from millstream.record import TopicPartition
from millstream.subscriptions.complaints import Complaints
from millstream.subscriptions.completion import Completion
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.metrics import PartitionMetrics
from millstream.subscriptions.plan import SubscriptionPart
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.share import SubscriptionShare
from millstream.subscriptions.tasks.extraction import DecatonTask
from millstream.subscriptions.tracing import Traces
from millstream.unawaited import checked_result

logger = logging.getLogger(__name__)

_NS_IN_MS: Final = 1_000_000


class SubscribeOperator(ApartOperator):
    """Processes the tasks of one partition, those of a key one after the other.

    Plain functions run on threads, or within the loop at a concurrency of 1; `async` ones on the
    event loop of the process. A task is in flight from where it is taken to where it is completed;
    about 700 bytes each beside the record.

    Semantics: Decaton's `PartitionContext` and `ProcessorUnit`.

    Args:
        part: what the subscription does with the topic.
    """

    def __init__(self, part: SubscriptionPart) -> None:
        self._part = part
        self._plan = part.plan
        self._properties = part.plan.properties
        self._version = 0
        self._in_flight = 0
        self._tickets = count()
        #: Tasks that are not to begin yet: when, and in which order.
        self._delayed: list[tuple[int, int, Call]] = []
        #: From any thread: deferred tasks that are completed.
        self._landed: deque[ProcessingContext] = deque()
        #: Those that are done when what was written of them has arrived, by offset; and those of
        #: which it has.
        self._sent: dict[int, ProcessingContext] = {}
        self._arrived: list[ProcessingContext] = []
        #: How many deferred tasks are being processed further.
        self._entered = 0
        self._entering = threading.Lock()
        self._latest_offset = -1
        self._is_halted = False
        self._is_closed = False
        self._is_rebuilding = False
        self._traces: Traces | None = None
        self._place: TopicPartition
        self._share: SubscriptionShare
        self._metrics: PartitionMetrics
        self._outgoing: Outgoing
        self._settling: Settling
        self._deadlines: Deadlines
        self._admission: Admission
        self._work: TaskCalls

    # --- what the engine asks --------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many tasks were taken and are not completed."""
        return self._in_flight

    @property
    def most_pending(self) -> int:
        """How many records of a partition may be in flight, or done behind one that is."""
        return self._properties.max_pending_records

    @property
    def room(self) -> int:
        """How many more may be taken."""
        self._follow_properties()
        if self._is_rebuilding:
            return 0
        room = self._properties.max_pending_records - self._in_flight - len(self._sent)
        permits = self._admission.permits
        return max(0, room if permits is None else min(room, permits))

    @property
    def has_landed(self) -> bool:
        """Whether tasks were completed, or are due."""
        units = self._work.units
        if self._landed or self._arrived or (units is not None and units.have_ended):
            return True
        if self._delayed and not self._is_halted and self._delayed[0][0] <= self._clock.now_ms():
            return True
        return self._deadlines.are_due

    @property
    def awaits_sent(self) -> bool:
        """Whether tasks wait for their retries and dead letters to arrive."""
        return bool(self._sent)

    def init(self, context: OperatorContext) -> None:
        """Begin with nothing in flight."""
        super().init(context)
        place = self._place = TopicPartition(self._part.topic, context.task_id.partition)
        self._share = self.equipment.share
        self._metrics = self._share.metrics.of(place)
        clock = self._clock = context.clock
        if self._share.properties is not None:
            self._properties, self._version = self._share.properties, self._share.version
        if self._plan.tracing is not None:
            self._traces = Traces(self._plan.tracing, self._plan.name, clock)
        self._work = TaskCalls(place, self._plan, self._share, self.equipment.apart, self._traces)
        self._complaints = Complaints(logger, clock)
        self._deadlines = Deadlines(clock)
        self._outgoing = Outgoing(
            self._part,
            context.task_id,
            clock,
            lambda: self._properties.retry_task_in_legacy_format,
            self._traces,
        )
        self._admission = Admission(self._part, self._properties, clock)
        self._settling = Settling(
            self._part, self._outgoing, self._metrics, self._complaints, context.failed
        )

    def process(self, batch: Batch, output: Output) -> None:
        """Take records: begin their tasks."""
        if not self._work.are_made:
            self._work.make(self._properties.partition_concurrency)
            self._share.metrics.show(self._place, self._gauges)
        self._latest_offset = batch.origin.offsets[batch.rows[-1]]
        self._metrics.count("records.consumed", len(batch))
        batch = self._admission.admitted(batch, self._outgoing, self._metrics, output)
        if not batch.keys:
            return
        tasks = self._tasks(batch)
        if self._work.units is None:
            self._run_here(batch, tasks, output)
        else:
            contexts = self._contexts(batch, tasks)
            if self._traces is not None:
                self._traces.begin(contexts)
            self._begin(contexts)

    def sent(self) -> None:
        """What was written of tasks has arrived. Those that were refused begin again later."""
        refused = self.equipment.refused.take()
        sent, self._sent = self._sent, {}
        for offset, context in sent.items():
            if (context.place, offset) in refused:
                self._begin_again(context)
            else:
                self._arrived.append(context)

    def halt(self) -> None:
        """Begin no more tasks."""
        self._is_halted = True
        self._work.halt()

    @property
    def may_land(self) -> bool:
        """Whether tasks may still be completed. Once halted, deferred ones are not waited for."""
        running = self._work.units is not None and self._work.units.are_running
        return not self._is_halted or running or self._entered > 0 or self.has_landed

    def release(self, output: Output) -> Sequence[Batch]:
        """Let tasks that are due begin, and settle those that were completed."""
        self._begin_delayed()
        self._metrics.count("tasks.timeout", self._deadlines.expire())
        done = self._ended()
        if done:
            self._in_flight -= len(done)
            done = self._settle(done, output)
        if self._arrived:
            done += self._arrived
            self._arrived = []
        if not done:
            return ()
        if self._traces is not None:
            self._traces.complete(done)
        size, nothing = len(done), [None] * len(done)
        origin = Origin(self._place, [context.offset for context in done])
        return [Batch(nothing, nothing, [0] * size, range(size), origin)]

    def close(self) -> None:
        """What is in flight is done again by the next owner; what runs comes to its end alone."""
        self._is_halted = self._is_closed = True
        self._work.close()
        self._share.metrics.forget(self._place)

    # --- what contexts ask -----------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """For the age of what is deferred."""
        return self._clock

    @property
    def can_retry(self) -> bool:
        """Whether there is a retry topic."""
        return self._part.retries is not None

    @property
    def deferred_timeout_ms(self) -> int | None:
        """After how long a deferred task has to be completed, unless its processor says so."""
        timeout_ms = self._properties.deferred_complete_timeout_ms
        return None if timeout_ms < 0 else timeout_ms

    def keep(self, completion: Completion) -> None:
        """Look after a deadline."""
        self._deadlines.keep(completion)

    def landed(self, context: ProcessingContext) -> None:
        """A deferred task whose processor has returned is done."""
        if not self._is_closed:
            self._landed.append(context)
            self.equipment.apart.tell()

    def leaked(self) -> None:
        """A completion was thrown away."""
        self._metrics.count("tasks.leaked")

    @property
    def is_open(self) -> bool:
        """Whether tasks are still to be completed."""
        return not self._is_halted

    def enter(self) -> bool:
        """A deferred task is about to be processed further, on any thread; whether it still may."""
        with self._entering:
            if self._is_halted:
                return False
            self._entered += 1
            return True

    def leave(self) -> None:
        """That has returned."""
        with self._entering:
            self._entered -= 1
        if self._is_halted:
            self.equipment.apart.tell()

    def count(self, name: str, by: int) -> None:
        """Add to a counter, on any thread."""
        self._metrics.count(name, by)

    # --- taking ----------------------------------------------------------------------------------

    def _gauges(self) -> Mapping[str, float]:
        pending, paused = self._in_flight + len(self._sent), int(self.room <= 0)
        gauges = {"tasks.pending": pending, "partition.paused": paused}
        return {**gauges, "offset.latest.consumed": self._latest_offset}

    def _tasks(self, batch: Batch) -> Sequence[DecatonTask[Any] | None]:
        """The tasks of records; None of those that hold none, which are dealt with."""
        place, origin = self._place, batch.origin
        headers = batch.all_headers()
        offsets = [origin.offsets[row] for row in batch.rows]
        columns = RecordColumns(
            batch.keys, batch.values, batch.timestamps, offsets, list(headers or ()) or None, None
        )
        reader = self._plan.reader
        reader.legacy_parse_fallback = self._properties.legacy_parse_fallback_enabled
        extracted = reader.read(place, columns, retried=self._part.role == "retry")
        for index, error in extracted.failures.items():
            self._metrics.count("tasks.discarded")
            if self._plan.on_error == "fail":
                self.context.failed(batch, index, error)
            else:
                self._complaints.tell(
                    f"a record at offset {offsets[index]} of {place} holds no task", error
                )
        return extracted.tasks

    def _contexts(
        self, batch: Batch, tasks: Iterable[DecatonTask[Any] | None]
    ) -> list[ProcessingContext]:
        calls, now_ns = self._work.calls, perf_counter_ns()
        return [
            ProcessingContext(self, batch, index, task, calls, now_ns)
            for index, task in enumerate(tasks)
            if task is not None
        ]

    def _begin(self, contexts: Sequence[ProcessingContext]) -> None:
        """Hand tasks over, those that are due."""
        units, hold = self._work.units, self.equipment.flights.hold_one
        assert units is not None
        self._in_flight += len(contexts)
        now_ms = self._clock.now_ms()
        due: list[Call] = []
        latencies: list[int] = []
        for context in contexts:
            hold(context.place, context.offset)
            call = Call(context.batch, context.index, self._work.unit(context.key), context)
            latencies.append(now_ms - context.metadata.timestamp_ms)
            if context.metadata.scheduled_time_ms > now_ms:
                self._delay(call, context.metadata.scheduled_time_ms)
            else:
                due.append(call)
        self._metrics.measure_all("tasks.delivery.latency", latencies)
        if due:
            units.start(due)

    def _begin_again(self, refused: ProcessingContext) -> None:
        """Let a task begin anew after a pause that can neither be retried nor buried elsewhere."""
        policy = self._plan.retry
        assert policy is not None
        metadata = refused.metadata
        task = DecatonTask(metadata, refused.task, refused.payload)
        context = ProcessingContext(
            self, refused.batch, refused.index, task, self._work.calls, perf_counter_ns()
        )
        if self._traces is not None:
            self._traces.begin([context])
        self._in_flight += 1
        call = Call(context.batch, context.index, self._work.unit(context.key), context)
        self._delay(call, self._clock.now_ms() + policy.pause_ms(metadata.retry_count))

    def _delay(self, call: Call, due_ms: int) -> None:
        heappush(self._delayed, (due_ms, next(self._tickets), call))

    def _begin_delayed(self) -> None:
        now_ms = self._clock.now_ms()
        due: list[Call] = []
        late: list[int] = []
        while not self._is_halted and self._delayed and self._delayed[0][0] <= now_ms:
            due_ms, _, call = heappop(self._delayed)
            late.append(now_ms - due_ms)
            due.append(call)
        if not due:
            return
        self._metrics.measure_all("tasks.scheduled.process.delay", late)
        if self._work.units is not None:
            self._work.units.start(due)
            return
        for call in due:
            if self._work.run(call.context):
                self._landed.append(call.context)

    # --- running ---------------------------------------------------------------------------------

    def _run_here(
        self, batch: Batch, tasks: Sequence[DecatonTask[Any] | None], output: Output
    ) -> None:
        """Process tasks within the loop: 1 us each beside the function."""
        calls, traces = self._work.calls, self._traces
        first = calls[0]
        now_ms = self._clock.now_ms()
        known = [task.metadata for task in tasks if task is not None]
        latencies = [now_ms - metadata.timestamp_ms for metadata in known]
        self._metrics.measure_all("tasks.delivery.latency", latencies)
        if max([metadata.scheduled_time_ms for metadata in known], default=0) > now_ms:
            tasks = self._without_delayed(batch, tasks, now_ms)
        touched: list[ProcessingContext] = []
        count, longest_ns = 0, 0
        started_ns = now_ns = perf_counter_ns()
        for index, task in enumerate(tasks):
            if task is None:
                continue
            # Made one by one, so that each can take the memory of the one before.
            context = ProcessingContext(self, batch, index, task, calls, now_ns)
            if traces is not None:
                traces.begin((context,))
            try:
                if (result := first(context, context.task)) is not None:
                    checked_result(result)
            except (Exception, CancelledError) as error:
                context.returned(as_failure(error))
            before_ns, now_ns = now_ns, perf_counter_ns()
            if now_ns - before_ns > longest_ns:
                longest_ns = now_ns - before_ns
            if not context.is_plain:
                touched.append(context)
                continue
            count += 1
            if traces is not None:
                traces.complete((context,))
        metrics = self._metrics
        took_ms, longest_ms = (now_ns - started_ns) / _NS_IN_MS, longest_ns / _NS_IN_MS
        metrics.measure("tasks.process.duration", count, took_ms, longest_ms)
        metrics.measure("tasks.complete.duration", count, took_ms, longest_ms)
        metrics.count("tasks.processed", count)
        if touched:
            self._end_here(touched, output)

    def _without_delayed(
        self, batch: Batch, tasks: Sequence[DecatonTask[Any] | None], now_ms: int
    ) -> list[DecatonTask[Any] | None]:
        due = list(tasks)
        for context in self._contexts(batch, tasks):
            scheduled_ms = context.metadata.scheduled_time_ms
            if scheduled_ms > now_ms:
                if self._traces is not None:
                    self._traces.begin((context,))
                due[context.index] = None
                self._hold(context)
                self._delay(Call(batch, context.index, None, context), scheduled_ms)
        return due

    def _end_here(self, touched: Sequence[ProcessingContext], output: Output) -> None:
        """Go on with tasks that were deferred, are to be retried, or have failed."""
        done: list[ProcessingContext] = []
        for context in touched:
            if context.outcome != "fail" and not context.returned(None):
                self._hold(context)
            else:
                done.append(context)
        finished = self._settle(done, output)
        if self._traces is not None:
            self._traces.complete(finished)
        for context in done:
            if context.offset in self._sent:
                self.equipment.flights.hold_one(context.place, context.offset)

    def _hold(self, context: ProcessingContext) -> None:
        self._in_flight += 1
        self.equipment.flights.hold_one(context.place, context.offset)

    # --- settling --------------------------------------------------------------------------------

    def _ended(self) -> list[ProcessingContext]:
        """The tasks that were completed since the last time."""
        landed = self._landed
        done = [landed.popleft() for _ in range(len(landed))]
        if self._work.units is not None:
            for call in self._work.units.ended():
                if call.error is not None:
                    # Not of the user's code.
                    raise call.error
                if call.result:
                    done.append(call.context)
        return done

    def _settle(self, done: Sequence[ProcessingContext], output: Output) -> list[ProcessingContext]:
        """Write what has to be written of tasks that have ended; those that are finished by that,
        and wait for no answer."""
        now_ns = perf_counter_ns()
        measure_all = self._metrics.measure_all
        measure_all("tasks.process.duration", [each.took_ns / _NS_IN_MS for each in done])
        measure_all(
            "tasks.complete.duration", [(now_ns - each.taken_ns) / _NS_IN_MS for each in done]
        )
        written = self._settling.settle(done, output)
        policy = self._plan.retry
        if policy is None or policy.on_send_failure != "keep":
            return list(done)
        self._sent.update((each.offset, each) for each in written)
        return [each for each in done if each.offset not in self._sent]

    # --- properties ------------------------------------------------------------------------------

    def _follow_properties(self) -> None:
        """Take over what was changed; another concurrency when nothing is in flight."""
        share = self._share
        if share.version != self._version and share.properties is not None:
            self._version = share.version
            self._apply(share.properties)
        if self._is_rebuilding and not self._in_flight:
            self._is_rebuilding = False
            self._work.make(self._properties.partition_concurrency)

    def _apply(self, new: Properties) -> None:
        old, self._properties = self._properties, new
        self._admission.change(new)
        if new.partition_concurrency != old.partition_concurrency and self._work.are_made:
            self._is_rebuilding = True
