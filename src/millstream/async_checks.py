"""Checks that user functions are not asynchronous functions or generators.

Calling either only creates an object. The code of a coroutine runs when it is awaited, and that
of a generator when it is iterated; the engine does neither with the results of user functions. The
record would be committed although the function's code never ran.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

_ASYNC_ADVICE: Final = (
    "Its result is not awaited, so its code would never run. Make it a plain function: call a "
    "synchronous client in it, or pass the coroutine to asyncio.run(...) there."
)
_GENERATOR_ADVICE: Final = (
    "The generator that it returns is never iterated, so its code would never run. Return the "
    "result instead of yielding it; a processor forwards records with context.forward(record), "
    "and flat_map() and flat_map_values() accept functions that yield."
)
#: The advice to pass to `checked_result` where asynchronous functions are allowed.
AWAIT_ADVICE: Final = (
    "Its result is not awaited, so its code would never run. Pass the async function itself "
    "instead of a function that only calls it, or await it in an async def function."
)


def is_asynchronous(function: object) -> bool:
    """Whether a call returns a coroutine or an asynchronous generator.

    The checks of this module detect functions and methods defined by `async def` or `yield`,
    `functools.partial` objects of these, and objects whose `__call__` is such a method.
    """
    return _is_made_by(function, _is_async)


def is_generator(function: object) -> bool:
    """Whether a call returns a generator, because the function contains `yield`."""
    return _is_made_by(function, inspect.isgeneratorfunction)


def is_deferred(function: object) -> bool:
    """Whether a function is asynchronous or a generator.

    A call of such a function runs none of its code.
    """
    return is_asynchronous(function) or is_generator(function)


def is_async_generator(function: object) -> bool:
    """Whether a call returns an asynchronous generator, which cannot be awaited."""
    return _is_made_by(function, inspect.isasyncgenfunction)


def asynchronous_advice(subject: str, advice: str = _ASYNC_ADVICE) -> str:
    """Explain what to write instead of `subject`, for example "Its method process"."""
    return f"{subject} is asynchronous. {advice}"


def deferred_advice(subject: str, function: object) -> str:
    return generator_advice(subject) if is_generator(function) else asynchronous_advice(subject)


def generator_advice(subject: str) -> str:
    return f"{subject} is a generator function, because of its yield. {_GENERATOR_ADVICE}"


def reject_deferred(owner: str, parameter: str, function: object) -> None:
    """Raise TypeError if a function is asynchronous or a generator function."""
    if is_deferred(function):
        raise TypeError(
            f"{owner} needs a plain function as its {parameter}. "
            + deferred_advice(name_of(function), function)
        )


def reject_generator(owner: str, parameter: str, function: object) -> None:
    """Raise TypeError if a function is a generator function."""
    if is_generator(function):
        raise TypeError(
            f"{owner} needs a plain or an async function as its {parameter}. "
            + generator_advice(name_of(function))
        )


def deferred_method_advice(target: object, names: Iterable[str]) -> str | None:
    """Return advice for the first method that is asynchronous or a generator, if any."""
    kind = target if isinstance(target, type) else type(target)
    for name in names:
        method = getattr(target, name, None)
        if is_deferred(method):
            return deferred_advice(f"{kind.__qualname__}.{name}", method)
    return None


def reject_deferred_methods(owner: str, target: object, prefix: str) -> None:
    """Raise TypeError if a method with the prefix is asynchronous or a generator."""
    for name in dir(target):
        if name.startswith(prefix):
            reject_deferred(owner, name, getattr(target, name))


def is_unawaited(result: object) -> bool:
    """Whether a result is a coroutine or asynchronous generator instead of a value."""
    return isinstance(result, (CoroutineType, AsyncGeneratorType, Coroutine))


def is_unstarted(result: object) -> bool:
    """Whether a result is a coroutine or a generator, so its code has not started."""
    return isinstance(result, GeneratorType) or is_unawaited(result)


def checked_effect(result: Any) -> Any:
    """Check the result of a function called for its side effect or as a condition.

    Raises TypeError for a coroutine or a generator: the function's code never ran.
    """
    if isinstance(result, GeneratorType):
        raise TypeError(
            "The function returned a generator instead of a result. "
            + generator_advice(result.__qualname__)
        )
    return checked_result(result)


def checked_result(result: Any, advice: str = _ASYNC_ADVICE) -> Any:
    """Return a user function's result.

    Raises TypeError for a coroutine or an asynchronous generator.
    """
    if is_unawaited(result):
        name = getattr(result, "__qualname__", type(result).__name__)
        if isinstance(result, Coroutine):
            # Otherwise Python prints a warning, which explains less than this error.
            result.close()
        raise TypeError(
            "The function returned a coroutine instead of a result. "
            + asynchronous_advice(name, advice)
        )
    return result


def name_of(function: object) -> str:
    """Return the qualified name of a function; its `repr` if it has none."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    return str(getattr(inner, "__qualname__", None) or repr(function))


def _is_made_by(function: object, is_of_kind: Callable[[object], bool]) -> bool:
    """Whether `is_of_kind` holds for a function or a callable object.

    Checks the function of a `partial`, and the `__call__` of an object.
    """
    while isinstance(function, partial):
        function = function.func
    if is_of_kind(function):
        return True
    is_instance = callable(function) and not isinstance(function, type)
    return is_instance and is_of_kind(type(function).__call__)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
