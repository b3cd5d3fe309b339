"""Asynchronous functions and generators where plain functions belong.

A call of either only creates an object: a coroutine, whose code runs when it is awaited, or a
generator, whose code runs in a loop over it. The engine does neither with the results of the user's
functions. The record would be committed although no line of the function's body was executed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

_WAY_OUT: Final = (
    "Nobody awaits what it returns, so its code would never run. Make it a plain function: call a "
    "synchronous client in it, or give the coroutine to asyncio.run(...) there."
)
_NO_LOOP: Final = (
    "Nothing loops over the generator that a call returns, so its code would never run. Return the "
    "result in place of yielding it; a processor forwards records with context.forward(record), "
    "and flat_map() and flat_map_values() take functions that yield."
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
    return _is_made_by(function, _is_async)


def is_generator(function: object) -> bool:
    """Whether a call would return a generator, because of a `yield` in the body.

    Args:
        function: what is to be called; of the same kinds as for `is_asynchronous`.
    """
    return _is_made_by(function, inspect.isgeneratorfunction)


def is_deferred(function: object) -> bool:
    """Whether a call would execute no line of the function: it is asynchronous, or a generator."""
    return is_asynchronous(function) or is_generator(function)


def is_async_generator(function: object) -> bool:
    """Whether a call would give an asynchronous generator, which cannot be awaited.

    Args:
        function: what is to be called; as `is_asynchronous` sees it.
    """
    return _is_made_by(function, inspect.isasyncgenfunction)


def asynchronous_advice(what: str, way_out: str = _WAY_OUT) -> str:
    """What is wrong with an asynchronous function, and what to write.

    Args:
        what: the function, as the subject of a sentence: "Its method process".
        way_out: what to write.
    """
    return f"{what} is asynchronous. {way_out}"


def deferred_advice(what: str, function: object) -> str:
    """What is wrong with a function of `is_deferred`, and what to write.

    Args:
        what: the function, as the subject of a sentence: "Its method process".
        function: the function.
    """
    return generator_advice(what) if is_generator(function) else asynchronous_advice(what)


def generator_advice(what: str) -> str:
    """What is wrong with a generator function, and what to write.

    Args:
        what: the function, as the subject of a sentence.
    """
    return f"{what} is a generator function, because of its yield. {_NO_LOOP}"


def refuse_deferred(taker: str, parameter: str, function: object) -> None:
    """Refuse an asynchronous function, or a generator function, where a plain one is called.

    Args:
        taker: what was given the function, for example `Serde()`.
        parameter: the function's name there.
        function: the function.

    Raises:
        TypeError: it is one of these.
    """
    if is_deferred(function):
        raise TypeError(
            f"{taker} needs a plain function as its {parameter}. "
            + deferred_advice(name_of(function), function)
        )


def refuse_generator(taker: str, parameter: str, function: object) -> None:
    """Refuse a generator function where a plain function or a coroutine function is called.

    Args:
        taker: what was given the function.
        parameter: the function's name there.
        function: the function.

    Raises:
        TypeError: it is a generator function.
    """
    if is_generator(function):
        raise TypeError(
            f"{taker} needs a plain or an async function as its {parameter}. "
            + generator_advice(name_of(function))
        )


def deferred_method_advice(made: object, names: Iterable[str]) -> str | None:
    """What is wrong with the first method that is asynchronous, or a generator; None if none is.

    Args:
        made: the object or the class.
        names: of methods that it may have.
    """
    kind = made if isinstance(made, type) else type(made)
    for name in names:
        method = getattr(made, name, None)
        if is_deferred(method):
            return deferred_advice(f"{kind.__qualname__}.{name}", method)
    return None


def refuse_deferred_methods(taker: str, made: object, prefix: str) -> None:
    """Refuse an object that has methods of `is_deferred` where plain ones are called.

    Args:
        taker: what was given the object.
        made: the object.
        prefix: the beginning of the names of those methods.

    Raises:
        TypeError: one is asynchronous.
    """
    for name in dir(made):
        if name.startswith(prefix):
            refuse_deferred(taker, name, getattr(made, name))


def is_unawaited(result: object) -> bool:
    """Whether a result is work that still waits to be awaited, and not a value."""
    return isinstance(result, (CoroutineType, AsyncGeneratorType, Coroutine))


def is_unstarted(result: object) -> bool:
    """Whether a result is a coroutine or a generator, whose code has not begun to run."""
    return isinstance(result, GeneratorType) or is_unawaited(result)


def checked_effect(result: Any) -> Any:
    """The result of a function that is called for its effect, or as a condition.

    Raises:
        TypeError: it is a coroutine or a generator: the function's code never ran.
    """
    if isinstance(result, GeneratorType):
        raise TypeError(
            "The function returned a generator in place of a result. "
            + generator_advice(result.__qualname__)
        )
    return checked_result(result)


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


def _is_made_by(function: object, is_of_kind: Callable[[object], bool]) -> bool:
    """Whether a function, what a `partial` calls, or the `__call__` of an object is of a kind."""
    while isinstance(function, partial):
        function = function.func
    if is_of_kind(function):
        return True
    is_instance = callable(function) and not isinstance(function, type)
    return is_instance and is_of_kind(type(function).__call__)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
