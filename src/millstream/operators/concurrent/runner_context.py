"""The context that a task's concurrent operators share, and default call runners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.operators.concurrent.concurrent_calls import (
    Call,
    CallRunner,
    CallRunners,
    CompletionSignal,
)
from millstream.operators.concurrent.coroutine_runner import CoroutineRunner
from millstream.operators.concurrent.in_flight import InFlightRecords
from millstream.operators.concurrent.thread_runner import ThreadRunner
from millstream.subscriptions.thread_state import RejectedTasks, SubscriptionThreadState


class DownstreamTime:
    """The stream time downstream of concurrent operators, advanced by their results.

    Args:
        next_call_ms: returns the time of the next stream-time punctuation downstream; None if
            there is none.
    """

    def __init__(self, next_call_ms: Callable[[], int | None] = lambda: None) -> None:
        #: The highest timestamp emitted so far; -1 before the first record.
        self.stream_time = -1
        #: The maximum number of records to emit at a time; None for no maximum.
        self.max_records: int | None = None
        self._next_call_ms = next_call_ms

    def advance(self, timestamps: Sequence[int]) -> list[int]:
        """Advance stream time, and return it at each record that is emitted now.

        Stops after the first record that makes a punctuation due, or after `max_records` records.
        """
        until_ms = self._next_call_ms()
        times: list[int] = []
        for timestamp in timestamps:
            self.stream_time = max(self.stream_time, timestamp)
            times.append(self.stream_time)
            if len(times) == self.max_records:
                break
            if until_ms is not None and self.stream_time >= until_ms:
                break
        return times


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """The context that the concurrent operators of one task share."""

    runners: CallRunners
    #: Whether results are always emitted in offset order, so that a transaction contains no results
    #: of records at or after the committed offset.
    in_offset_order: bool = False
    #: Whether a commit waits until nothing is in flight. If so, operators should take few records.
    drains_before_commit: bool = False
    in_flight_records: InFlightRecords = field(default_factory=InFlightRecords)
    downstream_time: DownstreamTime = field(default_factory=DownstreamTime)
    subscription_state: SubscriptionThreadState = field(default_factory=SubscriptionThreadState)
    rejected_tasks: RejectedTasks = field(default_factory=set)


class DefaultCallRunners(CompletionSignal):
    """Creates the coroutine and thread runners of one task. Implements `CallRunners`."""

    def make_coroutine_runner(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        max_concurrent: int,
        timeout_ms: int | None,
    ) -> CallRunner:
        return CoroutineRunner(function, arguments, max_concurrent, timeout_ms, self)

    def make_thread_runner(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        max_concurrent: int,
    ) -> CallRunner:
        return ThreadRunner(function, arguments, max_concurrent, self)
