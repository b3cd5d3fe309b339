"""The operator of `map_async`: new values from a function that may wait, many records at a time."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NoReturn

from millstream.errors import StreamsError
from millstream.operators.apart.apart_operator import UnitsOperator, failure_of, released
from millstream.operators.apart.calls import Call
from millstream.operators.apart.shared_resource import SharedResource, acquire, release
from millstream.operators.apart.window import AsTheyEnd, InOrder, Window
from millstream.operators.batch import Batch
from millstream.operators.operator import OperatorContext, Output
from millstream.unawaited import AWAITED, checked_result, name_of

#: How many records wait for a turn beside those that have one: enough for the 5 ms until the loop
#: looks, at 100,000 records a second.
_WAITING: Final = 500

#: Types of most keys, which are what they look like.
_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None)})


class Ordering(enum.Enum):
    """In which order results go on, and which calls wait for each other."""

    #: Calls of one key one after the other, and their results in that order.
    KEY = "key"
    #: All calls side by side, results as they come.
    NONE = "none"
    #: All calls side by side, results in the order of the records of an input partition.
    PARTITION = "partition"


class MapAsyncOperator(UnitsOperator):
    """Replaces each value by the function's result, when there is one.

    Args:
        function: the user's.
        is_coroutine: whether it is awaited on the event loop, rather than called on a thread.
        with_key: whether it takes the key as well.
        concurrency: how many calls there are at a time.
        ordering: of the results.
        timeout_ms: after how long a call is given up; None for never.
        using: makes what the function gets before its other arguments; None for nothing.
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
        using: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__()
        self._function = function
        self._is_coroutine = is_coroutine
        self._arguments = _key_and_value if with_key else _value
        self._concurrency = concurrency
        self._ordering = ordering
        self._timeout_ms = timeout_ms
        self._using = using
        self._resource: SharedResource | None = None
        self._most = 2 * concurrency + _WAITING
        #: What may go on, but had to let somebody be called first.
        self._free: deque[Call] = deque()
        self._window: Window

    @property
    def room(self) -> int:
        """How many more may be taken."""
        # What waits for a turn would make each commit wait longer, perhaps past the time of its
        # transaction.
        most = self._concurrency if self.equipment.lands else self._most
        return most - self._in_flight

    @property
    def has_landed(self) -> bool:
        """Whether calls have ended."""
        return bool(self._free) or self._units.have_ended

    def init(self, context: OperatorContext) -> None:
        """Begin with nothing in flight."""
        super().init(context)
        equipment = self.equipment
        apart, function = equipment.apart, self._opened()
        if self._is_coroutine:
            self._units = apart.coroutines(
                function, self._arguments, self._concurrency, self._timeout_ms
            )
        else:
            self._units = apart.threads(function, self._arguments, self._concurrency)
        by_offset = equipment.in_offset_order or self._ordering is Ordering.PARTITION
        self._window = InOrder() if by_offset else AsTheyEnd()

    def close(self) -> None:
        """What is in flight is done again by the next owner."""
        try:
            if hasattr(self, "_units"):
                super().close()
        finally:
            resource, self._resource = self._resource, None
            if resource is not None:
                release(resource)

    def _opened(self) -> Callable[..., Any]:
        """The function, with what it uses."""
        using = self._using
        if using is None:
            return self._function
        try:
            self._resource = acquire(using, on_loop=self._is_coroutine)
        except Exception as error:
            raise StreamsError(
                f"using={name_of(using)} could not be opened: {type(error).__name__}: {error}",
                node=self.context.node,
                task_id=self.context.task_id,
            ) from error
        return self._resource.bound(self._function)

    def process(self, batch: Batch, output: Output) -> None:
        """Begin the calls."""
        if self._ordering is Ordering.KEY:
            batch, units = self._told_apart(batch)
            calls = [Call(batch, index, unit) for index, unit in enumerate(units)]
        else:
            calls = [Call(batch, index, None) for index in range(len(batch))]
        self._hold(batch)
        self._window.add(calls)
        self._units.start(calls)

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
        return self._let_go(done)

    def _has_result(self, call: Call, done: list[Batch]) -> bool:
        failure = failure_of(call)
        if failure is None:
            try:
                checked_result(call.result, AWAITED)
                return True
            except TypeError as error:
                failure = error
        self.context.failed(call.batch, call.index, failure)
        done.append(call.batch.take([call.index]))
        return False

    def _told_apart(self, batch: Batch) -> tuple[Batch, list[Hashable]]:
        """The records whose keys can be told from others, and their units."""
        try:
            return batch, list(map(_unit, batch.keys))
        except TypeError:
            # One by one, to know which one it is.
            kept: list[int] = []
            units: list[Hashable] = []
        for index, key in enumerate(batch.keys):
            try:
                units.append(_unit(key))
                kept.append(index)
            except TypeError as error:
                self.context.failed(batch, index, error)
        return batch.take(kept), units


def _value(call: Call) -> tuple[Any, ...]:
    return (call.batch.values[call.index],)


def _key_and_value(call: Call) -> tuple[Any, ...]:
    return (call.batch.keys[call.index], call.batch.values[call.index])


def _unit(key: Any) -> Hashable:
    """What tells a key from others; None for one that no other record has to wait for.

    Raises:
        TypeError: nothing does, as two that are the same key are different objects.
    """
    if type(key) not in _PLAIN:
        _check_equality(key)
    try:
        hash(key)
    except TypeError:
        # Two that look alike wait for each other, which costs time and no order.
        return repr(key)
    return key  # type: ignore[no-any-return]


def _check_equality(key: Any) -> None:
    kind = type(key)
    if kind in _PLAIN or isinstance(key, enum.Enum):
        return
    if isinstance(key, dict):
        for pair in key.items():
            _check_equality(pair)
    elif isinstance(key, tuple | list | set | frozenset):
        for part in key:
            _check_equality(part)
    elif _is_of_object(kind, "__eq__"):
        _refuse(kind, "has no __eq__")
    elif kind.__hash__ is None and _is_of_object(kind, "__repr__"):
        _refuse(kind, "has an __eq__, but no __hash__ and no __repr__")


def _is_of_object(kind: type, method: str) -> bool:
    """Whether a class has no method of that name of its own."""
    return getattr(kind, method) is getattr(object, method)


def _refuse(kind: type, why: str) -> NoReturn:
    raise TypeError(
        f"keys of the class {kind.__qualname__}, which {why}, cannot be told from each other, so "
        "that their order could not be kept. Make it a @dataclass(frozen=True), or take "
        'ordering="partition" or "none"'
    )
