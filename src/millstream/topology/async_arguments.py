"""Refusing wrong arguments of operations that work beside the loop, where they are declared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.topology.arguments import checked_arguments, wrong_type
from millstream.topology.call_site import call_site
from millstream.unawaited import (
    generator_advice,
    is_async_generator,
    is_asynchronous,
    is_generator,
    name_of,
)

ORDERINGS: Final = ("key", "none", "partition")
#: More calls than any process has sockets for.
_MOST_CONCURRENT: Final = 100_000
#: More threads than this cost more than they bring.
_MOST_THREADS: Final = 2_000


def checked_async(
    operation: str,
    function: Callable[..., Any],
    *,
    with_key: bool,
    using: Callable[[], Any] | None = None,
) -> tuple[Callable[..., Any], bool]:
    """The function, and whether it is a coroutine function.

    Args:
        operation: the method that takes it.
        function: what it was given.
        with_key: whether the key goes before the value.
        using: returns the context manager whose value is the first argument; None for none.

    Raises:
        TypeError: the mapper does not take these arguments, or `using` does not return a context
            manager when it is called.
    """
    if using is None:
        checked_arguments(operation, "mapper", function, "value", with_key=with_key)
    else:
        _check_using(operation, using)
        arguments = ("resource", "key", "value") if with_key else ("resource", "value")
        checked_arguments(operation, "mapper", function, *arguments)
    refuse_what_gives_no_value(operation, function)
    return function, is_asynchronous(function)


def _check_using(operation: str, using: Any) -> None:
    """Refuse an object that does not return a context manager when it is called.

    Raises:
        TypeError: it cannot be called, or is a coroutine function or a generator function.
    """
    if not callable(using):
        raise wrong_type(
            f"{operation}() needs a class or a function as using=, which returns a context manager "
            f"on each worker, but got {type(using).__name__}: an open client cannot be sent there."
        )
    if is_asynchronous(using) or is_generator(using):
        kind, decorator = (
            ("an async def function", "asynccontextmanager")
            if is_asynchronous(using)
            else ("a generator function", "contextmanager")
        )
        raise wrong_type(
            f"{operation}() calls using= to get a context manager, but {name_of(using)} is {kind}. "
            f"Put @contextlib.{decorator} above it."
        )
    checked_arguments(operation, "using", using)


def refuse_what_gives_no_value(operation: str, function: Callable[..., Any]) -> None:
    """Refuse what can be called, but whose result would be something else than the values.

    Raises:
        TypeError: it is a generator function, asynchronous or not, or a class whose objects are to
            be called.
    """
    if is_async_generator(function):
        raise wrong_type(
            f"{operation}() awaits what its mapper returns, but {name_of(function)} is an "
            "asynchronous generator, because of its yield. Let it return the value."
        )
    if is_generator(function):
        raise wrong_type(
            f"{operation}() takes a function that returns its result. "
            + generator_advice(name_of(function))
        )
    if isinstance(function, type) and any("__call__" in vars(each) for each in function.__mro__):
        raise wrong_type(
            f"{operation}() got the class {name_of(function)} as its mapper, and would only make "
            f"objects of it. Give it one: {name_of(function)}(...)."
        )


def wrong_setting(problem: str) -> ConfigError:
    """The error that a number or a choice cannot be, with file and line of the user's program."""
    return ConfigError(problem, declared_at=call_site() or None)


def checked_concurrency(operation: str, concurrency: int, ordering: str) -> tuple[int, str]:
    """Both, as they are.

    Raises:
        ConfigError: one of them cannot be.
    """
    if type(concurrency) is not int or not 1 <= concurrency <= _MOST_CONCURRENT:
        raise wrong_setting(
            f"{operation}() needs a concurrency from 1 to {_MOST_CONCURRENT}, but got "
            f"{concurrency!r}."
        )
    if ordering not in ORDERINGS:
        known = ", ".join(map(repr, ORDERINGS))
        raise wrong_setting(f"{operation}() knows the orderings {known}, but got {ordering!r}.")
    return concurrency, ordering


def checked_timeout(
    operation: str, function: Callable[..., Any], timeout: timedelta | None
) -> int | None:
    """The timeout in ms; None for none.

    Raises:
        ConfigError: it is not positive, or nothing could be cancelled.
    """
    if timeout is None:
        return None
    try:
        timeout_ms = milliseconds(f"{operation}()", "timeout", timeout, least_ms=1)
    except ConfigError as error:
        error.declared_at = call_site() or None
        raise
    if not is_asynchronous(function):
        raise wrong_setting(
            f"{operation}() got a timeout for a plain function, which nothing can cancel. Make it "
            "an async def function, or let what it waits for have a timeout."
        )
    return timeout_ms


def checked_threads(operation: str, function: Callable[..., Any], concurrency: int) -> None:
    """Refuse more threads than a process bears.

    Raises:
        ConfigError: it is a plain function, and the concurrency too high for it.
    """
    if concurrency > _MOST_THREADS and not is_asynchronous(function):
        raise wrong_setting(
            f"{operation}() calls a plain function on threads, of which {concurrency} are too "
            f"many: at most {_MOST_THREADS}. An async def function takes more."
        )
