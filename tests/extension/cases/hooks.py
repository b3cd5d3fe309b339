"""Objects whose special methods call a hook, which performs the next reaction of a trace."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final

from extension.cases.values import Trace

MAX_DEPTH: Final = 3
#: The errors that reactions raise.
ERRORS: Final[tuple[type[BaseException], ...]] = (
    ValueError,
    KeyError,
    RecursionError,
    StopIteration,
    KeyboardInterrupt,
    MemoryError,
)
#: The errors that a step may raise.
_EXPECTED: Final[tuple[type[BaseException], ...]] = (
    *ERRORS,
    TypeError,
    OverflowError,
    RuntimeError,
    AttributeError,
    IndexError,
    BufferError,
    ArithmeticError,
)


class World:
    """The objects that the actions of a trace share, and the reactions of the current step.

    The action `(name, *arguments)` is the method `_name`.
    """

    current: ClassVar[World | None] = None
    #: The number of hooked objects that exist.
    alive: ClassVar = 0

    def __init__(self) -> None:
        World.current = self
        self.depth = 0
        self.reactions: Iterator[Any] = iter(())
        self.faults: list[str] = []

    def perform(self, action: tuple[Any, ...]) -> None:
        """Perform an action; an error is passed on, because the caller may be C code."""
        self.depth += 1
        try:
            getattr(self, f"_{action[0]}")(*action[1:])
        except SystemError as error:
            self.faults.append(f"{action[0]}: {error!r}, caused by {error.__cause__!r}")
            raise
        finally:
            self.depth -= 1

    def _raise(self, number: int) -> None:
        raise ERRORS[number % len(ERRORS)]("raised")

    def check(self) -> None:
        """Check the state at the end."""

    def run(self, trace: Trace) -> list[str]:
        """Perform a trace, whose steps end with their reactions; return the faults."""
        for *action, reactions in trace:
            self.reactions = iter(reactions)
            try:
                self.perform(tuple(action))
            except _EXPECTED:
                # Any step may fail; the state at the end is checked.
                pass
            except SystemError:
                break
        self.reactions = iter(())
        gc.collect()
        self.check()
        return self.faults


def run_world(kind: Callable[[], World], trace: Trace) -> list[str]:
    """Run a trace, and check that it releases all hooked objects."""
    thresholds, unraisable = gc.get_threshold(), sys.unraisablehook
    # Errors in finalizers are expected.
    sys.unraisablehook = lambda _: None
    before = World.alive
    try:
        faults = kind().run(trace)
    finally:
        World.current = None
        gc.set_threshold(*thresholds)
        gc.collect()
        sys.unraisablehook = unraisable
    left, World.alive = World.alive - before, before
    return [*faults, f"{left} objects were not released"] if left else faults


def hook() -> None:
    """Perform the next reaction of the current step."""
    world = World.current
    if world is not None and world.depth <= MAX_DEPTH:
        action = next(world.reactions, None)
        if action is not None:
            world.perform(action)


def hooked(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        hook()
        yield item


class HookedBytes(bytes):
    def __hash__(self) -> int:
        hook()
        return bytes.__hash__(self)

    def __eq__(self, other: object) -> bool:
        hook()
        return bytes.__eq__(self, other)

    def __gt__(self, other: Any) -> bool:
        hook()
        return bytes.__gt__(self, other)


class HookedObject:
    me: Any = None

    def __init__(self) -> None:
        World.alive += 1

    def __repr__(self) -> str:
        hook()
        return "hooked"

    def __eq__(self, other: object) -> bool:
        hook()
        return True

    def __del__(self) -> None:
        World.alive -= 1
        hook()


class HookedNumber(HookedObject):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __index__(self) -> int:
        hook()
        return self._number

    def __add__(self, other: Any) -> Any:
        hook()
        return HookedNumber((self._number + 1) % 2**40)


class HookedType(type):
    """A class whose description for error messages calls the hook."""

    def __repr__(cls) -> str:
        hook()
        return "Odd"
