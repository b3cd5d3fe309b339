"""Bugs of what goes on beside the loop, put into production classes on purpose; see `planted`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from millstream.operators.apart import map_async
from millstream.operators.apart.flights import Flights
from millstream.operators.apart.subscription.subscribe import SubscribeOperator
from millstream.operators.apart.subscription.task_calls import TaskCalls
from millstream.operators.apart.window import InOrder
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.stream_task import StreamTask

Replacement = tuple[Any, str, Any]


def _finished_before_its_steps() -> list[Replacement]:
    """A result counts as done when it is released, and goes on with the next batch."""

    def release(self: Any) -> list[Any]:
        done: list[Any] = []
        for operator, output in self._apart:
            done += operator.release(output)
        return done

    return [(Executor, "release", release)]


def _in_flight_finished() -> list[Replacement]:
    """Offsets are done when their records are taken."""
    return [(Flights, "__bool__", lambda self: False)]


def _commit_while_landing() -> list[Replacement]:
    """A commit does not wait for what is in flight behind a store."""
    right = StreamTask.may_commit

    def may_commit(self: Any) -> bool:
        right(self)
        return True

    return [(StreamTask, "may_commit", may_commit)]


def _keys_side_by_side() -> list[Replacement]:
    """Calls of one key do not wait for each other."""
    return [(map_async, "_unit", lambda key: None)]


def _tasks_side_by_side() -> list[Replacement]:
    """Tasks of one key do not wait for each other."""
    return [(TaskCalls, "unit", lambda self, key: None)]


def _rebuilt_at_once() -> list[Replacement]:
    """Another concurrency holds at once, with tasks in flight among the old units."""
    right = SubscribeOperator._apply

    def apply(self: Any, new: Any) -> None:
        right(self, new)
        if self._is_rebuilding:
            self._is_rebuilding = False
            self._work.make(self._properties.partition_concurrency)

    return [(SubscribeOperator, "_apply", apply)]


def _in_no_order() -> list[Replacement]:
    """Results go on as they come, though a transaction holds them."""
    return [(InOrder, "pass_on", lambda self, ended: ended)]


BUGS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "finished before its steps": _finished_before_its_steps,
    "in flight, and finished": _in_flight_finished,
    "commit while landing": _commit_while_landing,
    "keys side by side": _keys_side_by_side,
    "tasks side by side": _tasks_side_by_side,
    "rebuilt at once": _rebuilt_at_once,
}

BUGS_OF_TRANSACTIONS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "results in no order": _in_no_order,
}
