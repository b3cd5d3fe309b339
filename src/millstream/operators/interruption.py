"""Stopping the calls of user functions between two records, from another thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


class BatchInterruptedError(BaseException):
    """A batch has taken too long: the functions of its nodes are not called any more.

    No `Exception`, so that exception handlers and most user code do not catch it. `TimeLimits`
    raises it again where user code did, for example by a bare `except:` around `forward()`.
    """


class _Guarded(NamedTuple):
    """A user function behind a `partial`, and the state of that `partial`."""

    call: partial[Any]
    state: tuple[Any, ...]


class UserCalls:
    """The user functions of one executor, whose calls can be stopped.

    Each is called through a `functools.partial`, in C and without a Python frame: about 15 ns a
    call. To stop the calls, the function inside the `partial` is exchanged, wherever a loop (in
    Python or in C) has got to: the call at hand goes on, the next one raises.

    `interrupt` may be called from another thread, the other methods belong to the stream thread.
    """

    def __init__(self) -> None:
        self._guarded: list[_Guarded] = []
        self._has_raised = False
        # Holds the bound method that interrupted `partial`s refer to.
        self._raise = self._interrupted

    def add(self, function: _Function) -> _Function:
        """The same function, as one that can be stopped."""
        call: partial[Any] = partial(function)
        # Holds what the `partial` refers to while a call is under way.
        state = (call.func, call.args, call.keywords, None)
        self._guarded.append(_Guarded(call, state))
        return cast("_Function", call)

    def interrupt(self) -> None:
        """From now on every call raises `BatchInterruptedError`."""
        for guarded in self._guarded:
            guarded.call.__setstate__((self._raise, (), {}, None))  # type: ignore[attr-defined]

    def restore(self) -> bool:
        """Let calls work again; whether any call has raised `BatchInterruptedError` meanwhile."""
        for guarded in self._guarded:
            guarded.call.__setstate__(guarded.state)  # type: ignore[attr-defined]
        has_raised, self._has_raised = self._has_raised, False
        return has_raised

    def _interrupted(self, *_: Any, **__: Any) -> Any:
        self._has_raised = True
        raise BatchInterruptedError
