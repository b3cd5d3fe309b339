"""Processor calls for the tasks of one partition."""

from __future__ import annotations

from asyncio import CancelledError
from inspect import isawaitable
from itertools import count
from time import perf_counter_ns
from typing import Any, Final

from confluent_kafka import murmur2

from millstream.async_checks import checked_effect
from millstream.operators.concurrent.concurrent_calls import Call, CallRunner, CallRunners
from millstream.operators.concurrent.coroutine_runner import as_failure
from millstream.record import TopicPartition
from millstream.subscriptions.processing_context import ProcessingContext, ProcessorCall
from millstream.subscriptions.subscription_plan import SubscriptionPlan
from millstream.subscriptions.thread_state import SubscriptionThreadState
from millstream.subscriptions.tracing import TaskTraces

#: The result of a call that was not made because a rate limit was set in the meantime.
NOT_STARTED: Final = object()

#: Salt of the hash that maps keys to units. It must differ from the hash that maps keys to
#: partitions, or the keys of a partition would be concentrated in a few units. Decaton uses the
#: same value.
_SALT: Final = b"s:"


class TaskCalls:
    """Calls processors for the tasks of one partition.

    The calls run on the event loop, on threads, or inline.
    """

    def __init__(
        self,
        partition: TopicPartition,
        plan: SubscriptionPlan,
        thread_state: SubscriptionThreadState,
        runners: CallRunners,
        traces: TaskTraces | None,
    ) -> None:
        #: The concurrent units; None if tasks are processed inline.
        self.units: CallRunner | None = None
        #: The processors, except those of thread units.
        self.calls: tuple[ProcessorCall, ...] = ()
        #: Whether calls that have not started return `NOT_STARTED`.
        self.returns_unstarted = False
        self._plan = plan
        self._thread_state = thread_state
        self._runners = runners
        self._traces = traces
        self._partition = partition
        self._concurrency = 1
        self._unit_numbers = count()
        self._is_closed = False

    @property
    def are_created(self) -> bool:
        return self.units is not None or bool(self.calls)

    def create_units(self, concurrency: int) -> None:
        """Create the units. Nothing may be in flight."""
        self._concurrency = concurrency
        if self.units is not None:
            self.units.close()
        self._thread_state.instances(self._plan).close_units(self._partition)
        self.calls = ()
        if self._plan.chain.is_async:
            self.calls = self._calls_of(None)
            self.units = self._runners.make_coroutine_runner(
                self._run_async, _arguments, concurrency, None
            )
        elif concurrency == 1:
            self.calls = self._calls_of(0)
            self.units = None
        else:
            self.units = self._runners.make_thread_runner(
                self._run_in_unit, _arguments, concurrency
            )

    def unit_for(self, key: bytes | None) -> Any:
        """Return the unit for the next task of a key; None for any unit."""
        if self._plan.chain.is_async:
            return key
        if key is None:
            # Round robin by number, because processors belong to units.
            return next(self._unit_numbers) % self._concurrency
        return murmur2(_SALT + key, self._concurrency)

    def halt(self) -> None:
        if self.units is not None:
            self.units.halt()

    def close(self) -> None:
        """Close the units and processors of the partition.

        The results of running calls are ignored.
        """
        self._is_closed = True
        if self.units is not None:
            self.units.close(cancel=self._plan.cancel_running)
        self._thread_state.instances(self._plan).close_partition(self._partition)

    def run(self, context: ProcessingContext) -> bool:
        """Process a task inline. Returns whether it is completed."""
        return _run(context, self.calls)

    def _calls_of(self, unit: int | None) -> tuple[ProcessorCall, ...]:
        calls = self._thread_state.instances(self._plan).calls(self._partition, unit)
        if self._traces is None:
            return calls
        return self._traces.wrap(calls, self._plan.chain.is_async)

    def _run_in_unit(self, call: Call) -> object:
        if self.returns_unstarted:
            return NOT_STARTED
        return _run(call.context, self._calls_of(call.unit))

    async def _run_async(self, call: Call) -> object:
        if self.returns_unstarted:
            return NOT_STARTED
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


def _run(context: ProcessingContext, calls: tuple[ProcessorCall, ...]) -> bool:
    started_ns = perf_counter_ns()
    error: BaseException | None = None
    try:
        checked_effect(context.call(calls))
    except BaseException as failure:
        error = as_failure(failure)
    context.took_ns = perf_counter_ns() - started_ns
    return context.returned(error)


def _arguments(call: Call) -> tuple[Any, ...]:
    return (call,)
