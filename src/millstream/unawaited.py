"""Asynchronous functions where plain ones belong.

Nothing in the engine awaits what a function of the user's returns. A coroutine that nobody awaits
never runs: its record would be committed although nothing was done with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable
from functools import partial
from types import AsyncGeneratorType, CoroutineType
from typing import Any, Final

_WAY_OUT: Final = (
    "Nobody awaits what it returns, so its code would never run. Make it a plain function: call a "
    "synchronous client in it, or give the coroutine to asyncio.run(...) there."
)
#: What to write where a function may be asynchronous, as `checked_result` takes it.
AWAITED: Final = (
    "Nobody awaits what it returns, so its code would never run. Give it itself, in place of a "
    "function that only calls it, or await it in an async def function."
)


def is_asynchronous(function: object) -> bool:
    """Whether a call would give a coroutine or an asynchronous generator, as far as that shows.

    It shows in what was made by `async def`: functions, methods, `functools.partial` of these, and
    objects whose `__call__` is such a method.

    Args:
        function: what is to be called.
    """
    while isinstance(function, partial):
        function = function.func
    if _is_async(function):
        return True
    is_instance = callable(function) and not isinstance(function, type)
    return is_instance and _is_async(type(function).__call__)


def is_async_generator(function: object) -> bool:
    """Whether a call would give an asynchronous generator, which cannot be awaited.

    Args:
        function: what is to be called; as `is_asynchronous` sees it.
    """
    while isinstance(function, partial):
        function = function.func
    if inspect.isasyncgenfunction(function):
        return True
    is_instance = callable(function) and not isinstance(function, type)
    return is_instance and inspect.isasyncgenfunction(type(function).__call__)


def asynchronous_advice(what: str, way_out: str = _WAY_OUT) -> str:
    """What is wrong with an asynchronous function, and what to write.

    Args:
        what: the function, as the subject of a sentence: "Its method process".
        way_out: what to write.
    """
    return f"{what} is asynchronous. {way_out}"


def refuse_asynchronous(taker: str, parameter: str, function: object) -> None:
    """Refuse an asynchronous function where a plain one is called.

    Args:
        taker: what was given the function, for example `Serde()`.
        parameter: the function's name there.
        function: the function.

    Raises:
        TypeError: it is asynchronous.
    """
    if is_asynchronous(function):
        raise TypeError(
            f"{taker} needs a plain function as its {parameter}. "
            + asynchronous_advice(name_of(function))
        )


def asynchronous_method(made: object, names: Iterable[str]) -> str | None:
    """The first of an object's or class's methods that is asynchronous; None if none is.

    Args:
        made: the object or the class.
        names: of methods that it may have.
    """
    return next((name for name in names if is_asynchronous(getattr(made, name, None))), None)


def refuse_asynchronous_methods(taker: str, made: object, prefix: str) -> None:
    """Refuse an object that has asynchronous methods where plain ones are called.

    Args:
        taker: what was given the object.
        made: the object.
        prefix: the beginning of the names of those methods.

    Raises:
        TypeError: one is asynchronous.
    """
    for name in dir(made):
        if name.startswith(prefix):
            refuse_asynchronous(taker, name, getattr(made, name))


def is_unawaited(result: object) -> bool:
    """Whether a result is work that still waits to be awaited, and not a value."""
    return isinstance(result, (CoroutineType, AsyncGeneratorType, Coroutine))


def checked_result(result: Any, way_out: str = _WAY_OUT) -> Any:
    """The result of a function of the user's.

    Args:
        result: what it has returned.
        way_out: what to write in place of a function that returns a coroutine.

    Raises:
        TypeError: it is a coroutine, or alike.
    """
    if is_unawaited(result):
        name = getattr(result, "__qualname__", type(result).__name__)
        if isinstance(result, Coroutine):
            # Python would warn on standard error, with less to say than this error.
            result.close()
        raise TypeError(
            "The function gave a coroutine in place of a result. "
            + asynchronous_advice(name, way_out)
        )
    return result


def name_of(function: object) -> str:
    """What a function calls itself; its repr if it has no name."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    return str(getattr(inner, "__qualname__", None) or repr(function))


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
