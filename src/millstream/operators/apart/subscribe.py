"""The operator of a subscription: the tasks of one partition, many at a time."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from inspect import isawaitable
from itertools import count
from typing import Any, Final

from confluent_kafka import murmur2

from millstream.clock import Clock
from millstream.errors import StreamsError
from millstream.kafka.data.record_columns import RecordColumns
from millstream.operators.apart.apart_operator import ApartOperator
from millstream.operators.apart.calls import Call, Units
from millstream.operators.apart.coroutines import as_failure
from millstream.operators.apart.deadlines import Deadlines
from millstream.operators.apart.subscribed_tasks import Outgoing
from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import OperatorContext, Output
from millstream.record import TopicPartition
from millstream.subscriptions.completion import Completion
from millstream.subscriptions.context import Next, ProcessingContext, no_retry_topic
from millstream.subscriptions.limits.ignored_keys import IgnoredKeys
from millstream.subscriptions.limits.key_quota import KeyQuota
from millstream.subscriptions.limits.rate_limiter import RateLimiter
from millstream.subscriptions.plan import SubscriptionPart
from millstream.subscriptions.properties.properties import UNLIMITED, Properties
from millstream.subscriptions.share import SubscriptionShare
from millstream.unawaited import checked_result

logger = logging.getLogger(__name__)

#: Keys are spread over units by another hash than over partitions, or those of one partition would
#: come together in a few units. Decaton's.
_SALT: Final = b"s:"
#: At most so many tasks that fail are told one by one in a row.
_TELL_MS: Final = 10_000


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
        self._place: TopicPartition
        self._in_flight = 0
        self._tickets = count()
        #: Tasks that are not to begin yet: when, and in which order.
        self._delayed: list[tuple[int, int, Call]] = []
        self._deadlines = Deadlines()
        #: From any thread: deferred tasks that are completed.
        self._landed: deque[ProcessingContext] = deque()
        self._untold = 0
        self._tell_ms = 0
        self._is_closed = False
        self._units: Units | None = None
        self._calls: tuple[Next, ...] = ()
        self._share: SubscriptionShare
        self._outgoing: Outgoing

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
        room = self._properties.max_pending_records - self._in_flight
        if self._limiter.rate != UNLIMITED:
            room = min(room, self._limiter.permits(self._clock.monotonic_ms() * 1_000))
        return max(0, room)

    @property
    def has_landed(self) -> bool:
        """Whether tasks were completed, or are due."""
        if self._landed or (self._units is not None and self._units.have_ended):
            return True
        if self._delayed and self._delayed[0][0] <= self._clock.now_ms():
            return True
        return self._deadlines.is_due(self._clock.monotonic_ms())

    def init(self, context: OperatorContext) -> None:
        """Begin with nothing in flight."""
        super().init(context)
        self._place = TopicPartition(self._part.topic, context.task_id.partition)
        self._share = self.equipment.share
        self._clock: Clock = context.clock
        self._outgoing = Outgoing(
            self._part,
            context.task_id,
            self._clock,
            lambda: self._properties.retry_task_in_legacy_format,
        )
        self._is_rebuilding = False
        if self._share.properties is not None:
            self._properties, self._version = self._share.properties, self._share.version
        self._limiter = RateLimiter(self._rate, now_us=self._clock.monotonic_ms() * 1_000)
        self._quota = KeyQuota(self._quota_rate)
        self._ignored = IgnoredKeys(self._properties.ignore_keys)

    def process(self, batch: Batch, output: Output) -> None:
        """Take records: begin their tasks."""
        if not self._calls and self._units is None:
            self._make_units()
        self._limiter.take(len(batch))
        batch = self._without_ignored(batch)
        if batch.keys and self._quota.rate != UNLIMITED:
            batch = self._within_quota(batch, output)
        if not batch.keys:
            return
        contexts = self._contexts(batch, output)
        if self._units is None:
            self._run_here(contexts, batch, output)
        else:
            self._begin([Call(batch, context.index, None, context) for context in contexts])
        self._count("records.consumed", len(batch))

    def release(self, output: Output) -> Sequence[Batch]:
        """Let tasks that are due begin, and settle those that were completed."""
        self._begin_delayed(output)
        self._expire()
        done: list[ProcessingContext] = []
        if self._units is not None:
            for call in self._units.ended():
                context: ProcessingContext = call.context
                if call.error is not None:
                    # Not of the user's code.
                    raise call.error
                if call.result:
                    done.append(context)
        landed = self._landed
        done.extend(landed.popleft() for _ in range(len(landed)))
        if not done:
            return ()
        self._settle(done, output)
        self._in_flight -= len(done)
        offsets = [context.offset for context in done]
        size = len(offsets)
        nothing: list[Any] = [None] * size
        origin = Origin(self._place, offsets)
        return [Batch(nothing, nothing, [0] * size, range(size), origin)]

    def close(self) -> None:
        """What is in flight is done again by the next owner; what runs comes to its end alone."""
        self._is_closed = True
        if self._units is not None:
            self._units.close()
        self._share.instances(self._plan).close_partition(self._place)
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
        self._count("tasks.leaked")

    # --- taking ----------------------------------------------------------------------------------

    def _without_ignored(self, batch: Batch) -> Batch:
        ignored = self._ignored.among(batch.keys)
        if not ignored:
            return batch
        self._count("tasks.ignored", len(ignored))
        gone = set(ignored)
        return batch.take([index for index in range(len(batch)) if index not in gone])

    def _within_quota(self, batch: Batch, output: Output) -> Batch:
        above = self._quota.violations(batch.keys, self._clock.monotonic_ms())
        if not above:
            return batch
        self._outgoing.shape(batch, above, output)
        self._count("shaping.queued.tasks", len(above))
        return batch.take([index for index in range(len(batch)) if index not in above])

    def _contexts(self, batch: Batch, output: Output) -> list[ProcessingContext]:
        """The tasks of records; those that hold none are dealt with."""
        place, origin = self._place, batch.origin
        headers = batch.all_headers()
        offsets = [origin.offsets[row] for row in batch.rows]
        columns = RecordColumns(
            batch.keys, batch.values, batch.timestamps, offsets, list(headers or ()) or None, None
        )
        reader = self._plan.reader
        reader.legacy_parse_fallback = self._properties.legacy_parse_fallback_enabled
        extracted = reader.read(place, columns, retried=self._part.role == "retry")
        calls = self._calls
        made = [
            ProcessingContext(self, batch, index, task, calls)
            for index, task in enumerate(extracted.tasks)
            if task is not None
        ]
        for index, error in extracted.failures.items():
            self._count("tasks.discarded")
            if self._plan.on_error == "fail":
                self.context.failed(batch, index, error)
            else:
                self._tell(f"a record at offset {offsets[index]} of {place} holds no task", error)
        return made

    def _begin(self, calls: list[Call]) -> None:
        """Hand tasks over, those that are due."""
        units = self._units
        assert units is not None
        for call in calls:
            self.equipment.flights.hold_one(call.context.place, call.context.offset)
        self._in_flight += len(calls)
        now_ms = self._clock.now_ms()
        due: list[Call] = []
        for call in calls:
            call.unit = self._unit(call.context.key)
            if call.context.metadata.scheduled_time_ms > now_ms:
                self._delay(call)
            else:
                due.append(call)
        if due:
            units.start(due)

    def _delay(self, call: Call) -> None:
        due_ms = call.context.metadata.scheduled_time_ms
        heappush(self._delayed, (due_ms, next(self._tickets), call))

    def _begin_delayed(self, output: Output) -> None:
        now_ms = self._clock.now_ms()
        due: list[Call] = []
        while self._delayed and self._delayed[0][0] <= now_ms:
            due.append(heappop(self._delayed)[2])
        if not due:
            return
        if self._units is not None:
            self._units.start(due)
            return
        for call in due:
            if self._run(call):
                self._landed.append(call.context)

    def _unit(self, key: bytes | None) -> Any:
        """Which unit works on the tasks of a key; None for any."""
        if key is None:
            return None
        if self._plan.chain.is_async:
            return key
        return murmur2(_SALT + key, self._properties.partition_concurrency)

    # --- running ---------------------------------------------------------------------------------

    def _make_units(self) -> None:
        """As many as the properties of now say; nothing may be in flight."""
        place, plan = self._place, self._plan
        instances = self._share.instances(plan)
        if self._units is not None:
            self._units.close()
        instances.close_units(place)
        concurrency = self._properties.partition_concurrency
        self._calls = ()
        if plan.chain.is_async:
            self._calls = instances.calls(place, None)
            self._units = self.equipment.apart.coroutines(
                self._run_async, _itself, concurrency, None
            )
        elif concurrency == 1:
            self._calls = instances.calls(place, 0)
            self._units = None
        else:
            self._units = self.equipment.apart.threads(self._run_of_unit, _itself, concurrency)

    def _run_here(self, contexts: list[ProcessingContext], batch: Batch, output: Output) -> None:
        """Process tasks within the loop: 1 us each beside the function."""
        first = self._calls[0]
        now_ms = self._clock.now_ms()
        open_ones: list[ProcessingContext] = []
        for context in contexts:
            if context.metadata.scheduled_time_ms > now_ms:
                self._in_flight += 1
                self.equipment.flights.hold_one(context.place, context.offset)
                self._delay(Call(batch, context.index, None, context))
                continue
            try:
                if (result := first(context, context.task)) is not None:
                    checked_result(result)
            except Exception as error:
                context.returned(error)
            if context.is_plain:
                continue
            if context.outcome != "fail" and not context.returned(None):
                self._in_flight += 1
                self.equipment.flights.hold_one(context.place, context.offset)
            else:
                open_ones.append(context)
        self._count("tasks.processed", len(contexts) - len(open_ones))
        if open_ones:
            self._settle(open_ones, output)

    def _run(self, call: Call) -> bool:
        """Process a task; whether it is done with that."""
        context: ProcessingContext = call.context
        try:
            checked_result(context.call(self._calls))
        except BaseException as error:
            return context.returned(error)
        return context.returned(None)

    def _run_of_unit(self, call: Call) -> bool:
        context: ProcessingContext = call.context
        try:
            calls = self._share.instances(self._plan).calls(self._place, call.unit)
            checked_result(context.call(calls))
        except BaseException as error:
            return context.returned(error)
        return context.returned(None)

    async def _run_async(self, call: Call) -> bool:
        context: ProcessingContext = call.context
        try:
            result = context.call(self._calls)
            if isawaitable(result):
                await result
        except (Exception, CancelledError) as error:
            if self._is_closed:
                raise
            return context.returned(as_failure(error))
        return context.returned(None)

    # --- settling --------------------------------------------------------------------------------

    def _settle(self, done: list[ProcessingContext], output: Output) -> None:
        """Write what has to be written of tasks that have ended."""
        retried: list[ProcessingContext] = []
        completed = 0
        for context in done:
            if context.outcome == "complete":
                completed += 1
            elif context.outcome == "retry" and self._part.retries is None:
                context.error = no_retry_topic()
                self._fail(context, retried)
            elif context.outcome == "retry":
                retried.append(context)
            else:
                self._fail(context, retried)
        self._count("tasks.processed", completed)
        if retried:
            self._retry(retried, output)

    def _fail(self, context: ProcessingContext, retried: list[ProcessingContext]) -> None:
        error = context.error
        assert error is not None
        self._count("tasks.error")
        if not isinstance(error, Exception):
            raise error
        if self._plan.on_error == "retry":
            retried.append(context)
        elif self._plan.on_error == "skip":
            self._tell(context.describe(), error)
        else:
            self.context.failed(context.batch, context.index, error)

    def _retry(self, contexts: list[ProcessingContext], output: Output) -> None:
        last = self._outgoing.retry(contexts, output)
        self._count("retry.queued.tasks", len(contexts) - len(last))
        policy = self._plan.retry
        assert policy is not None
        for index in last:
            context = contexts[index]
            error = context.error or StreamsError("The processor asked for one more retry.")
            if policy.after_last == "dead_letter":
                self._outgoing.bury(context, error, output)
                self._count("tasks.dead")
            elif policy.after_last == "fail":
                assert isinstance(error, Exception)
                self.context.failed(context.batch, context.index, error)
            else:
                self._tell(f"{context.describe()}, tried for the last time", error)

    def _expire(self) -> None:
        for completion in self._deadlines.expired(self._clock.monotonic_ms()):
            self._count("tasks.timeout")
            completion.time_out()

    def _tell(self, what: str, error: BaseException) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._tell_ms:
            self._untold += 1
            return
        logger.warning("%s: %s (%d more were not told)", what, error, self._untold, exc_info=error)
        self._untold, self._tell_ms = 0, now_ms + _TELL_MS

    # --- properties ------------------------------------------------------------------------------

    @property
    def _rate(self) -> int:
        properties, place = self._properties, self._place
        if self._part.role != "shaping":
            return properties.processing_rate_per_partition
        rates = properties.shaping_topic_processing_rate_per_partition
        if place.topic in rates:
            return rates[place.topic]
        return properties.per_key_quota_processing_rate

    @property
    def _quota_rate(self) -> int:
        if self._part.role != "origin" or self._part.shaping is None:
            return UNLIMITED
        return self._properties.per_key_quota_processing_rate

    def _follow_properties(self) -> None:
        """Take over what was changed; another concurrency when nothing is in flight."""
        share = self._share
        if share.version != self._version and share.properties is not None:
            self._version = share.version
            self._apply(share.properties)
        if self._is_rebuilding and not self._in_flight:
            self._is_rebuilding = False
            self._make_units()

    def _apply(self, new: Properties) -> None:
        old, self._properties = self._properties, new
        self._limiter.change_rate(self._rate, self._clock.monotonic_ms() * 1_000)
        self._quota.change_rate(self._quota_rate)
        if new.ignore_keys != old.ignore_keys:
            self._ignored = IgnoredKeys(new.ignore_keys)
        if new.partition_concurrency != old.partition_concurrency:
            self._is_rebuilding = True

    def _count(self, name: str, by: int = 1) -> None:
        if by:
            self._share.metrics.count(name, self._place, by)


def _itself(call: Call) -> tuple[Any, ...]:
    return (call,)
