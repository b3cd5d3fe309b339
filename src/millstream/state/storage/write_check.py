"""Verifies that no write reaches the disk before everything that it caused is delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from millstream.errors import IllegalStateError

#: The variable that turns it on.
CHECK_WRITES: Final = "MILLSTREAM_CHECK_WRITES"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class WriteCheck:
    """The order of the writes and deliveries of one stream thread, for tests.

    A thread works in units: a batch, a punctuation, the flush of a cache. What a unit has sent is
    complete when the unit ends, and delivered when the producer is flushed after that. A store may
    only write what units did that are delivered: if the process died between the write and the
    delivery, the next owner would find the state of a record without its results.

    Stream threads have one if `CHECK_WRITES` is set in the environment of the workers.
    """

    def __init__(self) -> None:
        self._ended = 0
        self._delivered = 0
        self._depth = 0

    @property
    def last_unit(self) -> int:
        """The number of the unit that runs, or else of the last one that ended."""
        return self._ended + (self._depth > 0)

    def begin(self) -> None:
        """Begin a unit, or a part of the unit that runs."""
        self._depth += 1

    def end(self) -> None:
        """End what was begun last."""
        self._depth -= 1
        if not self._depth:
            self._ended += 1

    def watch(self, worker: object, *methods: str) -> None:
        """Take each call of these methods for a unit, or for a part of one.

        Args:
            worker: the object.
            methods: their names.
        """
        for name in methods:
            setattr(worker, name, self._within(getattr(worker, name)))

    def _within(self, work: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        def unit(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
            self.begin()
            try:
                return work(*arguments, **named)
            finally:
                self.end()

        return unit

    def flushed(self) -> None:
        """Everything that was sent is acknowledged."""
        self._delivered = self._ended

    def may_write(self, last_unit: int) -> None:
        """Verify that a store may write what was put into it up to some unit.

        Raises:
            IllegalStateError: not all that this unit has sent is delivered.
        """
        if last_unit > self._delivered:
            raise IllegalStateError(
                f"A store is about to write what unit {last_unit} of its thread has put into it, "
                f"but only units up to {self._delivered} are delivered: after a crash, records "
                "would be in the state and not in the output. This is a defect of Millstream."
            )
