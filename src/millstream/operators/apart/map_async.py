"""The operator of `map_async`: new values from a function that may wait, many records at a time."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from millstream.operators.apart.apart_operator import ApartOperator, released, told
from millstream.operators.apart.calls import Call, Units
from millstream.operators.apart.window import AsTheyEnd, InOrder, Window
from millstream.operators.batch import Batch
from millstream.operators.operator import OperatorContext, Output
from millstream.unawaited import checked_result

#: How many records wait for a turn beside those that have one: enough for the 5 ms until the loop
#: looks, at 100,000 records a second.
_WAITING: Final = 500


class Ordering(enum.Enum):
    """In which order results go on, and which calls wait for each other."""

    #: Calls of one key one after the other, and their results in that order.
    KEY = "key"
    #: All calls side by side, results as they come.
    NONE = "none"
    #: All calls side by side, results in the order of the records of an input partition.
    PARTITION = "partition"


class MapAsyncOperator(ApartOperator):
    """Replaces each value by the function's result, when there is one.

    Args:
        function: the user's.
        is_coroutine: whether it is awaited on the event loop, rather than called on a thread.
        with_key: whether it takes the key as well.
        concurrency: how many calls there are at a time.
        ordering: of the results.
        timeout_ms: after how long a call is given up; None for never.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        is_coroutine: bool,
        with_key: bool,
        concurrency: int,
        ordering: Ordering,
        timeout_ms: int | None,
    ) -> None:
        self._function = function
        self._is_coroutine = is_coroutine
        self._arguments = _key_and_value if with_key else _value
        self._concurrency = concurrency
        self._ordering = ordering
        self._timeout_ms = timeout_ms
        self._most = 2 * concurrency + _WAITING
        self._in_flight = 0
        self._is_halted = False
        #: What may go on, but had to let somebody be called first.
        self._free: deque[Call] = deque()
        self._units: Units
        self._window: Window

    @property
    def in_flight(self) -> int:
        """How many records were taken and not given back."""
        return self._in_flight

    @property
    def room(self) -> int:
        """How many more may be taken."""
        return self._most - self._in_flight

    @property
    def has_landed(self) -> bool:
        """Whether calls have ended."""
        return bool(self._free) or self._units.have_ended

    def init(self, context: OperatorContext) -> None:
        """Begin with nothing in flight."""
        super().init(context)
        equipment = self.equipment
        apart, function = equipment.apart, self._function
        if self._is_coroutine:
            self._units = apart.coroutines(
                function, self._arguments, self._concurrency, self._timeout_ms
            )
        else:
            self._units = apart.threads(function, self._arguments, self._concurrency)
        by_offset = equipment.in_offset_order or self._ordering is Ordering.PARTITION
        self._window = InOrder() if by_offset else AsTheyEnd()

    def process(self, batch: Batch, output: Output) -> None:
        """Begin the calls."""
        self.equipment.flights.hold(batch)
        self._in_flight += len(batch)
        if self._ordering is Ordering.KEY:
            calls = [Call(batch, index, _unit(key)) for index, key in enumerate(batch.keys)]
        else:
            calls = [Call(batch, index, None) for index in range(len(batch))]
        self._window.add(calls)
        self._units.start(calls)

    def halt(self) -> None:
        """Begin no more calls."""
        self._is_halted = True
        self._units.halt()

    @property
    def may_land(self) -> bool:
        """Whether calls may still end."""
        return not self._is_halted or self._units.are_running or self.has_landed

    def release(self, output: Output) -> Sequence[Batch]:
        """Emit the results that may go on."""
        done: list[Batch] = []
        free = self._free
        if self._units.have_ended:
            calls = self._window.pass_on(self._units.ended())
            free.extend(call for call in calls if self._has_result(call, done))
        if free:
            batch = released(list(free), self.equipment.time)
            for _ in range(len(batch)):
                free.popleft()
            done.append(batch)
            output.emit(batch)
        self._in_flight -= sum(map(len, done))
        return done

    def close(self) -> None:
        """What is in flight is done again by the next owner."""
        self._units.close()

    def _has_result(self, call: Call, done: list[Batch]) -> bool:
        error = call.error
        if error is None:
            try:
                checked_result(call.result)
                return True
            except Exception as failure:
                error = failure
        if not isinstance(error, Exception):
            raise error
        self.context.failed(call.batch, call.index, told(error, self._timeout_ms))
        done.append(call.batch.take([call.index]))
        return False


def _value(call: Call) -> tuple[Any, ...]:
    return (call.batch.values[call.index],)


def _key_and_value(call: Call) -> tuple[Any, ...]:
    return (call.batch.keys[call.index], call.batch.values[call.index])


def _unit(key: Any) -> Hashable:
    """What tells a key from others; None for one that no other record has to wait for."""
    try:
        hash(key)
    except TypeError:
        # Two that look alike wait for each other, which costs time and no order.
        return repr(key)
    return key  # type: ignore[no-any-return]
