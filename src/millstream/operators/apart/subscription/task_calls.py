"""How the processors of a subscription are called for the tasks of one partition."""

from __future__ import annotations

from asyncio import CancelledError
from inspect import isawaitable
from itertools import count
from time import perf_counter_ns
from typing import Any, Final

from confluent_kafka import murmur2

from millstream.operators.apart.calls import Apart, Call, Units
from millstream.operators.apart.coroutines import as_failure
from millstream.record import TopicPartition
from millstream.subscriptions.context import Next, ProcessingContext
from millstream.subscriptions.plan import SubscriptionPlan
from millstream.subscriptions.share import SubscriptionShare
from millstream.subscriptions.tracing import Traces
from millstream.unawaited import checked_effect

#: What a call gives that was not made, since tasks are to begin by a rate from now on.
NOT_BEGUN: Final = object()

#: Keys are spread over units by another hash than over partitions, or those of one partition would
#: come together in a few units. Decaton's.
_SALT: Final = b"s:"


class TaskCalls:
    """Calls processors for the tasks of one partition: on the event loop, on threads, or where it
    is asked to.

    Args:
        place: the partition.
        plan: the subscription.
        share: has the processors that live.
        apart: makes calls beside the loop.
        traces: are told of the calls.

    Attributes:
        units: make the calls beside the loop; None where tasks are processed within it.
        calls: the processors, but for those of threads.
        hands_back: whether calls that have not begun are to end with `NOT_BEGUN`.
    """

    def __init__(
        self,
        place: TopicPartition,
        plan: SubscriptionPlan,
        share: SubscriptionShare,
        apart: Apart,
        traces: Traces | None,
    ) -> None:
        self.units: Units | None = None
        self.calls: tuple[Next, ...] = ()
        self.hands_back = False
        self._plan = plan
        self._share = share
        self._apart = apart
        self._traces = traces
        self._place = place
        self._concurrency = 1
        self._turn = count()
        self._is_closed = False

    @property
    def are_made(self) -> bool:
        """Whether `make` was called."""
        return self.units is not None or bool(self.calls)

    def make(self, concurrency: int) -> None:
        """Make as many units as that; nothing may be in flight.

        Args:
            concurrency: how many tasks are processed at a time.
        """
        self._concurrency = concurrency
        if self.units is not None:
            self.units.close()
        self._share.instances(self._plan).close_units(self._place)
        self.calls = ()
        if self._plan.chain.is_async:
            self.calls = self._calls_of(None)
            self.units = self._apart.coroutines(self._run_async, _itself, concurrency, None)
        elif concurrency == 1:
            self.calls = self._calls_of(0)
            self.units = None
        else:
            self.units = self._apart.threads(self._run_of_unit, _itself, concurrency)

    def unit(self, key: bytes | None) -> Any:
        """Which unit works on the next task of a key; None for any."""
        if self._plan.chain.is_async:
            return key
        if key is None:
            # One after the other, and by number: processors belong to units.
            return next(self._turn) % self._concurrency
        return murmur2(_SALT + key, self._concurrency)

    def halt(self) -> None:
        """Begin no more."""
        if self.units is not None:
            self.units.halt()

    def close(self) -> None:
        """What runs comes to its end for nobody, and the processors of the partition are closed."""
        self._is_closed = True
        if self.units is not None:
            self.units.close(cancel=self._plan.cancel_running)
        self._share.instances(self._plan).close_partition(self._place)

    def run(self, context: ProcessingContext) -> bool:
        """Process a task here and now; whether it is done with that."""
        return _run(context, self.calls)

    def _calls_of(self, unit: int | None) -> tuple[Next, ...]:
        calls = self._share.instances(self._plan).calls(self._place, unit)
        if self._traces is None:
            return calls
        return self._traces.around(calls, self._plan.chain.is_async)

    def _run_of_unit(self, call: Call) -> object:
        if self.hands_back:
            return NOT_BEGUN
        return _run(call.context, self._calls_of(call.unit))

    async def _run_async(self, call: Call) -> object:
        if self.hands_back:
            return NOT_BEGUN
        context: ProcessingContext = call.context
        started_ns = perf_counter_ns()
        error: BaseException | None = None
        try:
            result = context.call(self.calls)
            if isawaitable(result):
                await result
            else:
                checked_effect(result)
        except (Exception, CancelledError) as failure:
            if self._is_closed:
                raise
            error = as_failure(failure)
        context.took_ns = perf_counter_ns() - started_ns
        return context.returned(error)


def _run(context: ProcessingContext, calls: tuple[Next, ...]) -> bool:
    started_ns = perf_counter_ns()
    error: BaseException | None = None
    try:
        checked_effect(context.call(calls))
    except BaseException as failure:
        error = as_failure(failure)
    context.took_ns = perf_counter_ns() - started_ns
    return context.returned(error)


def _itself(call: Call) -> tuple[Any, ...]:
    return (call,)
