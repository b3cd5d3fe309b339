"""The operator of a subscription: the tasks of one partition, many at a time."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final

from millstream.operators.apart.apart_operator import ApartOperator
from millstream.operators.apart.calls import Call
from millstream.operators.apart.coroutines import as_failure
from millstream.operators.apart.subscription.admission import Admission
from millstream.operators.apart.subscription.deadlines import Deadlines
from millstream.operators.apart.subscription.host import PartitionHost
from millstream.operators.apart.subscription.outgoing import UNREAD, Outgoing
from millstream.operators.apart.subscription.pending import Pending
from millstream.operators.apart.subscription.reading import Reading, Tasks
from millstream.operators.apart.subscription.settling import Settling
from millstream.operators.apart.subscription.task_calls import NOT_BEGUN, TaskCalls
from millstream.operators.apart.subscription.waiting import Waiting
from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import OperatorContext, Output
from millstream.record import TopicPartition
from millstream.subscriptions.complaints import Complaints
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.metrics import PartitionMetrics
from millstream.subscriptions.plan import SubscriptionPart
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.share import SubscriptionShare
from millstream.subscriptions.tasks.extraction import DecatonTask
from millstream.subscriptions.tasks.metadata import DecatonMetadata
from millstream.subscriptions.tracing import Traces
from millstream.unawaited import checked_effect

logger = logging.getLogger(__name__)

_NS_IN_MS: Final = 1_000_000
#: How long tasks that have waited are processed within the loop before others have their turn.
_MOMENT_NS: Final = 200 * _NS_IN_MS


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
        #: Calls that were handed over to units and have not ended.
        self._handed_over = 0
        #: Those that are done when what was written of them has arrived, by offset; and those of
        #: which it has.
        self._sent: dict[int, ProcessingContext] = {}
        self._arrived: list[ProcessingContext] = []
        self._latest_offset = -1
        self._is_rebuilding = False
        self._traces: Traces | None = None
        self._place: TopicPartition
        self._share: SubscriptionShare
        self._metrics: PartitionMetrics
        self._outgoing: Outgoing
        self._reading: Reading
        self._settling: Settling
        self._waiting: Waiting
        self._pending: Pending
        self._deadlines: Deadlines
        self._host: PartitionHost
        self._admission: Admission
        self._work: TaskCalls

    # --- what the engine asks --------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many tasks were taken and are not completed."""
        return len(self._pending) + len(self._waiting)

    @property
    def most_pending(self) -> int:
        """How many records of a partition may be in flight, or done behind one that is."""
        return self._properties.max_pending_records

    @property
    def room(self) -> int:
        """How many more may be taken."""
        self._follow_properties()
        if self._is_rebuilding or self._admission.is_stopped:
            return 0
        return max(0, self._properties.max_pending_records - self.in_flight - len(self._sent))

    @property
    def has_landed(self) -> bool:
        """Whether tasks were completed, or may begin."""
        units = self._work.units
        if self._host.ended or self._arrived or (units is not None and units.have_ended):
            return True
        if self._waiting.may_begin(self._room_for_calls):
            return True
        return self._deadlines.are_due or self._pending.wants_a_look

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
        self._pending = Pending(clock)
        complaints = Complaints(logger, clock)
        self._reading = Reading(self._part, place, self._metrics, complaints, context.failed)
        self._deadlines = Deadlines(clock)
        self._host = PartitionHost(
            self._plan.name,
            self._plan.key,
            clock,
            self._part.retries is not None,
            lambda: self._properties.deferred_complete_timeout_ms,
            self._deadlines,
            self._metrics,
            self.equipment.apart.tell,
        )
        self._outgoing = Outgoing(
            self._part,
            context.task_id,
            clock,
            lambda: self._properties.retry_task_in_legacy_format,
            self._traces,
        )
        self._admission = Admission(self._part, self._properties, clock)
        # What is retried has left its order.
        in_order = self._part.role != "retry"
        self._waiting = Waiting(clock, self._admission, keeps_order=in_order)
        self._settling = Settling(
            self._part, self._outgoing, self._metrics, complaints, context.failed
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
        tasks, unread = self._reading.read(batch, self._properties)
        if unread:
            self._bury(batch, unread)
        if self._work.units is None:
            self._run_here(batch, tasks, output)
        else:
            contexts = self._contexts(batch, tasks)
            if self._traces is not None:
                self._traces.begin(contexts)
            self._begin(batch, contexts)

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
        self._host.halt()
        self._waiting.is_held = True
        self._work.halt()

    @property
    def may_land(self) -> bool:
        """Whether tasks may still be completed: not those that wait for their time, or for the
        rate, which the next owner does. Once halted, deferred ones are not waited for."""
        if self._host.is_entered or self.has_landed:
            return True
        if not self._host.is_halted:
            return len(self._pending) > 0
        return self._work.units is not None and self._work.units.are_running

    def release(self, output: Output) -> Sequence[Batch]:
        """Let tasks that are due begin, and settle those that were completed."""
        self._pending.look()
        self._metrics.count("tasks.timeout", self._deadlines.expire())
        if self._work.units is None and not self._host.ended and not self._arrived:
            # They are settled the next time, so that the loop comes round in between.
            if self._waiting.may_begin(None):
                self._begin_here()
            return ()
        done = self._ended()
        if self._waiting and self._work.units is not None:
            self._begin_waiting()
        if done:
            self._pending.remove(done)
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
        self._host.halt()
        self._host.is_closed = True
        self._work.close()
        self._share.metrics.forget(self._place)

    # --- taking ----------------------------------------------------------------------------------

    def _gauges(self) -> Mapping[str, float]:
        return {
            "tasks.pending": self.in_flight + len(self._sent),
            "tasks.pending.age.max": self._pending.oldest_age_ms,
            "partition.paused": int(self.room <= 0),
            "offset.latest.consumed": self._latest_offset,
        }

    def _bury(self, batch: Batch, unread: Iterable[tuple[int, Exception]]) -> None:
        """Records that hold no task go to the dead-letter topic when tasks are settled."""
        for index, error in unread:
            nothing: DecatonTask[Any] = DecatonTask(DecatonMetadata(), None, batch.values[index])
            context = ProcessingContext(self._host, batch, index, nothing, (), perf_counter_ns())
            context.outcome, context.error = UNREAD, error
            self._hold(context)
            self._host.ended.append(context)

    def _contexts(self, batch: Batch, tasks: Tasks) -> list[ProcessingContext]:
        calls, now_ns = self._work.calls, perf_counter_ns()
        return [
            ProcessingContext(self._host, batch, index, task, calls, now_ns)
            for index, task in enumerate(tasks)
            if task is not None
        ]

    def _begin(self, batch: Batch, contexts: Sequence[ProcessingContext]) -> None:
        """Hand tasks over, those that may begin."""
        hold, waiting = self.equipment.flights.hold_one, self._waiting
        now_ms, lets_pass = self._clock.now_ms(), self._waiting.lets_pass(batch.keys)
        due: list[Call] = []
        latencies: list[int] = []
        for context in contexts:
            hold(context.place, context.offset)
            if (made_ms := context.metadata.timestamp_ms) > 0:
                latencies.append(now_ms - made_ms)
            scheduled_ms = context.metadata.scheduled_time_ms
            call = Call(batch, context.index, None, context)
            if lets_pass and scheduled_ms <= now_ms:
                due.append(call)
            elif waiting.keep(call, scheduled_ms):
                lets_pass = False
            else:
                due.append(call)
        self._metrics.measure_all("tasks.delivery.latency", latencies)
        for call in due:
            call.unit = self._work.unit(call.context.raw_key)
        self._hand_over(due)

    def _hand_over(self, calls: Sequence[Call]) -> None:
        if calls:
            assert self._work.units is not None
            self._pending.add(call.context for call in calls)
            self._handed_over += len(calls)
            self._work.units.start(calls)

    def _begin_again(self, refused: ProcessingContext) -> None:
        """Let a task begin anew after a pause that can neither be retried nor buried elsewhere."""
        policy = self._plan.retry
        assert policy is not None
        metadata = refused.metadata
        task = DecatonTask(metadata, refused.task, refused.payload)
        context = ProcessingContext(
            self._host, refused.batch, refused.index, task, self._work.calls, perf_counter_ns()
        )
        if refused.outcome == UNREAD:
            context.outcome, context.error = UNREAD, refused.error
        elif self._traces is not None:
            self._traces.complete((refused,))
            self._traces.begin((context,))
        call = Call(context.batch, context.index, None, context)
        pause_ms = policy.pause_ms(metadata.retry_count)
        self._waiting.keep_alone(call, self._clock.now_ms() + pause_ms)

    @property
    def _room_for_calls(self) -> int | None:
        """How many calls may be handed over; None for any number, which then wait elsewhere."""
        if self._work.units is None or not self._admission.is_limited:
            return None
        return self._properties.partition_concurrency - self._handed_over

    def _begin_waiting(self) -> None:
        """Hand tasks over that have waited."""
        self._metrics.measure_all("tasks.scheduled.process.delay", self._waiting.let_due())
        calls = self._waiting.take(self._room_for_calls, self._work.unit)
        now_ns = perf_counter_ns()
        unread: list[Call] = []
        for call in calls:
            call.context.taken_ns = now_ns
            if call.context.outcome == UNREAD:
                unread.append(call)
        if unread:
            self._waiting.ended(unread)
            contexts = [call.context for call in unread]
            self._pending.add(contexts)
            self._host.ended.extend(contexts)
            calls = [call for call in calls if call.context.outcome != UNREAD]
        self._hand_over(calls)

    def _begin_here(self) -> None:
        """Process tasks within the loop that have waited, for a moment."""
        self._metrics.measure_all("tasks.scheduled.process.delay", self._waiting.let_due())
        ends_ns = perf_counter_ns() + _MOMENT_NS
        while calls := self._waiting.take(1, lambda _: None):
            context: ProcessingContext = calls[0].context
            context.taken_ns = perf_counter_ns()
            self._pending.add((context,))
            if context.outcome == UNREAD or self._work.run(context):
                self._host.ended.append(context)
            if perf_counter_ns() > ends_ns:
                break
        self.equipment.apart.tell()

    # --- running ---------------------------------------------------------------------------------

    def _run_here(self, batch: Batch, tasks: Tasks, output: Output) -> None:
        """Process tasks within the loop: 1 us each beside the function."""
        calls, traces = self._work.calls, self._traces
        first = calls[0]
        now_ms = self._clock.now_ms()
        known = [task.metadata for task in tasks if task is not None]
        latencies = [now_ms - each.timestamp_ms for each in known if each.timestamp_ms > 0]
        self._metrics.measure_all("tasks.delivery.latency", latencies)
        latest_ms = max([metadata.scheduled_time_ms for metadata in known], default=0)
        if latest_ms > now_ms or not self._waiting.lets_pass(batch.keys):
            tasks = self._without_waiting(batch, tasks)
        touched: list[ProcessingContext] = []
        count, longest_ns, touched_ns = 0, 0, 0
        started_ns = now_ns = perf_counter_ns()
        for index, task in enumerate(tasks):
            if task is None:
                continue
            # Made one by one, so that each can take the memory of the one before.
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
                touched_ns += context.took_ns
                touched.append(context)
                continue
            if now_ns - before_ns > longest_ns:
                longest_ns = now_ns - before_ns
            count += 1
            if traces is not None:
                traces.complete((context,))
        metrics = self._metrics
        took_ms = (now_ns - started_ns - touched_ns) / _NS_IN_MS
        longest_ms = longest_ns / _NS_IN_MS
        metrics.measure("tasks.process.duration", count, took_ms, longest_ms)
        metrics.measure("tasks.complete.duration", count, took_ms, longest_ms)
        metrics.count("tasks.processed", count)
        if touched:
            self._end_here(touched, output)

    def _without_waiting(self, batch: Batch, tasks: Tasks) -> list[DecatonTask[Any] | None]:
        """The tasks that may begin now; those that may not are kept."""
        due = list(tasks)
        for context in self._contexts(batch, tasks):
            call = Call(batch, context.index, None, context)
            if self._waiting.keep(call, context.metadata.scheduled_time_ms):
                due[context.index] = None
                if self._traces is not None:
                    self._traces.begin((context,))
                self.equipment.flights.hold_one(context.place, context.offset)
        return due

    def _end_here(self, touched: Sequence[ProcessingContext], output: Output) -> None:
        """Go on with tasks that were deferred, are to be retried, or have failed."""
        done: list[ProcessingContext] = []
        for context in touched:
            if context.outcome != "fail" and not context.returned(None):
                self._hold(context)
            else:
                done.append(context)
        if self._host.ended:
            # Others, perhaps of the same keys, have ended before them, and are settled before them.
            for context in done:
                self._hold(context)
            self._host.ended.extend(done)
            return
        finished = self._settle(done, output)
        if self._traces is not None:
            self._traces.complete(finished)
        for context in done:
            if context.offset in self._sent:
                self.equipment.flights.hold_one(context.place, context.offset)

    def _hold(self, context: ProcessingContext) -> None:
        self._pending.add((context,))
        self.equipment.flights.hold_one(context.place, context.offset)

    # --- settling --------------------------------------------------------------------------------

    def _ended(self) -> list[ProcessingContext]:
        """The tasks that were completed since the last time."""
        landed = self._host.ended
        done = [landed.popleft() for _ in range(len(landed))]
        not_begun: list[Call] = []
        if self._work.units is not None:
            calls = self._work.units.ended()
            self._handed_over -= len(calls)
            for call in calls:
                if call.error is not None:
                    # Not of the user's code.
                    raise call.error
                if call.result is NOT_BEGUN:
                    not_begun.append(call)
                elif call.result:
                    done.append(call.context)
            self._waiting.ended(calls)
        if not_begun:
            self._pending.remove(call.context for call in not_begun)
            self._waiting.put_back(not_begun)
        return done

    def _settle(self, done: Sequence[ProcessingContext], output: Output) -> list[ProcessingContext]:
        """Write what has to be written of tasks that have ended; those that are finished by that,
        and wait for no answer."""
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
        if self._is_rebuilding and not self._pending:
            self._is_rebuilding = False
            self._waiting.forget_units()
            self._work.make(self._properties.partition_concurrency)
        if self._work.hands_back and not self._handed_over:
            self._work.hands_back = False
        self._waiting.is_held = self._host.is_halted or self._is_rebuilding or self._work.hands_back

    def _apply(self, new: Properties) -> None:
        old, self._properties = self._properties, new
        was_limited = self._admission.is_limited
        self._admission.change(new)
        if was_limited and not self._admission.is_limited:
            self._waiting.forget_units()
        elif not was_limited and self._admission.is_limited and self._handed_over:
            # They have cost nothing yet. What runs is waited for before others begin, so that those
            # of a key stay in order.
            self._work.hands_back = True
        if new.partition_concurrency != old.partition_concurrency and self._work.are_made:
            self._is_rebuilding = True
