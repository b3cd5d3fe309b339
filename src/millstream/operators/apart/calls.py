"""What is in flight: calls of user code that were begun and are not finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millstream.operators.batch import Batch


class Call:
    """One call of user code for one record. About 150 bytes, beside the record.

    Attributes:
        batch: where the record is.
        index: which one it is there.
        unit: calls of one unit are made one after the other, in the order in which they were
            handed over; None for a call that waits for no other.
        context: what its owner needs for it.
        result: what was returned.
        error: what was raised; None if nothing was.
        done: whether it has ended.
    """

    __slots__ = ("batch", "context", "done", "error", "index", "result", "unit")

    def __init__(self, batch: Batch, index: int, unit: Any, context: Any = None) -> None:
        self.batch = batch
        self.index = index
        self.unit = unit
        self.context = context
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False


class Units(Protocol):
    """Makes calls beside the loop."""

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls as soon as there is room, those of one unit in this order."""
        ...

    def ended(self) -> list[Call]:
        """The calls that have ended since the last time, in the order of their ends."""
        ...

    @property
    def have_ended(self) -> bool:
        """Whether there are such."""
        ...

    def halt(self) -> None:
        """Begin no more. What runs is told when it ends, and the rest never."""
        ...

    @property
    def are_running(self) -> bool:
        """Whether calls were begun that have not ended, or are not to be had from `ended` yet."""
        ...

    def close(self, *, cancel: bool = True) -> None:
        """Begin no more. Does not wait; what ends later is not told to anybody.

        Args:
            cancel: whether what runs is cancelled, where that is possible.
        """
        ...


class Apart(Protocol):
    """How calls are made beside the loop; another one in a simulation."""

    def coroutines(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        most: int,
        timeout_ms: int | None,
    ) -> Units:
        """Units that await an `async def` function, on the process's event loop.

        Args:
            function: what to call.
            arguments: with what, for each call.
            most: how many at a time.
            timeout_ms: after how long a call is cancelled; None for never.
        """
        ...

    def threads(
        self, function: Callable[..., Any], arguments: Callable[[Call], tuple[Any, ...]], most: int
    ) -> Units:
        """Units that call a plain function, each on a thread of its own.

        Args:
            function: what to call.
            arguments: with what, for each call.
            most: how many threads.
        """
        ...

    def tell(self) -> None:
        """Something has come to its end elsewhere, on any thread: the loop is to look."""
        ...

    def hear(self) -> None:
        """The loop is about to look at what has ended: what ends from now on is told anew."""
        ...

    def wait(self, timeout_ms: int) -> bool:
        """Wait until a call of this task ends; whether one did since the last `hear`."""
        ...
