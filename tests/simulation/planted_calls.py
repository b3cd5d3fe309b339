"""Bugs of concurrent calls, planted in production classes; see `planted`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from millstream.operators.concurrent import map_async
from millstream.operators.concurrent.in_flight import InFlightRecords
from millstream.operators.concurrent.map_async import InputOrder
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.stream_task import StreamTask
from millstream.subscriptions.operator.subscribe_operator import SubscribeOperator
from millstream.subscriptions.operator.task_calls import TaskCalls

Replacement = tuple[Any, str, Any]


def _completed_before_downstream() -> list[Replacement]:
    """A record counts as completed when its result is released, before the downstream nodes run."""

    def release(self: Any) -> list[Any]:
        done: list[Any] = []
        for operator, output in self._concurrent:
            done += operator.release(output)
        return done

    return [(Executor, "release", release)]


def _in_flight_committable() -> list[Replacement]:
    """Offsets are committable as soon as their records are taken."""
    return [(InFlightRecords, "__bool__", lambda self: False)]


def _commit_before_completion() -> list[Replacement]:
    """A commit does not wait for the records in flight downstream of a store."""
    original = StreamTask.can_commit

    def can_commit(self: Any) -> bool:
        original(self)
        return True

    return [(StreamTask, "can_commit", can_commit)]


def _concurrent_calls_of_a_key() -> list[Replacement]:
    """Calls of a key run concurrently."""
    return [(map_async, "_unit", lambda key: None)]


def _concurrent_tasks_of_a_key() -> list[Replacement]:
    """Tasks of a key run concurrently."""
    return [(TaskCalls, "unit_for", lambda self, key: None)]


def _units_replaced_in_flight() -> list[Replacement]:
    """A new concurrency applies at once, with tasks still in flight in the old units."""
    original = SubscribeOperator._apply_properties

    def apply(self: Any, new: Any) -> None:
        original(self, new)
        if self._is_rebuilding:
            self._is_rebuilding = False
            self._task_calls.create_units(self._properties.partition_concurrency)

    return [(SubscribeOperator, "_apply_properties", apply)]


def _unordered_results() -> list[Replacement]:
    """Results are forwarded in completion order, although the task uses transactions."""
    return [(InputOrder, "release", lambda self, completed: completed)]


BUGS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "completed before downstream": _completed_before_downstream,
    "in flight but committable": _in_flight_committable,
    "commit before completion": _commit_before_completion,
    "concurrent calls of a key": _concurrent_calls_of_a_key,
    "concurrent tasks of a key": _concurrent_tasks_of_a_key,
    "units replaced in flight": _units_replaced_in_flight,
}

TRANSACTIONAL_BUGS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "unordered results": _unordered_results,
}
