"""Verifies the order of writes and deliveries in tests.

No write may reach the disk before all of its results are delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from millstream.errors import IllegalStateError

#: The environment variable that enables the check.
CHECK_WRITES: Final = "MILLSTREAM_CHECK_WRITES"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class WriteCheck:
    """Tracks the order of the writes and deliveries of one stream thread, for tests.

    A thread works in units: a batch, a punctuation, or the flush of a cache. All records of a unit
    are sent by its end, and delivered when the producer is flushed afterwards. A store may only
    write the changes of delivered units: if the process ended between the write and the delivery,
    the next owner would find the state of a record without its results.

    Enabled in stream threads if `CHECK_WRITES` is set in the environment of the workers.
    """

    def __init__(self) -> None:
        self._ended = 0
        self._delivered = 0
        self._depth = 0

    @property
    def last_unit(self) -> int:
        """The number of the current unit, or else of the last one that ended."""
        return self._ended + (self._depth > 0)

    def begin(self) -> None:
        """Begin a unit, or a nested part of the current unit."""
        self._depth += 1

    def end(self) -> None:
        """End the current unit or part."""
        self._depth -= 1
        if not self._depth:
            self._ended += 1

    def watch(self, worker: object, *methods: str) -> None:
        """Treat each call of these methods as a unit, or as a part of the current unit."""
        for name in methods:
            setattr(worker, name, self._as_unit(getattr(worker, name)))

    def _as_unit(self, work: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        def unit(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            self.begin()
            try:
                return work(*args, **kwargs)
            finally:
                self.end()

        return unit

    def flushed(self) -> None:
        """Mark all ended units as delivered, as all records are acknowledged."""
        self._delivered = self._ended

    def verify_write(self, last_unit: int) -> None:
        """Verify that a store may write its changes up to a unit.

        Raises:
            IllegalStateError: not all records of this unit are delivered.
        """
        if last_unit > self._delivered:
            raise IllegalStateError(
                f"A store is about to write the changes of unit {last_unit} of its thread, but "
                f"only units up to {self._delivered} are delivered: after a crash, records would "
                "be in the state but not in the output. This is a bug in Millstream."
            )
