"""Checks of the arguments of `map_async` and `map_batches`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from millstream.async_checks import (
    generator_advice,
    is_async_generator,
    is_asynchronous,
    is_generator,
    name_of,
)
from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.operators.arrow import import_pyarrow
from millstream.topology.argument_checks import check_signature, type_error
from millstream.topology.call_site import call_site
from millstream.topology.operations.operation import Operation
from millstream.topology.operations.streams import MapBatches, MapBatchesAsync

ORDERINGS: Final = ("key", "none", "partition")
#: The maximum concurrency of `map_async`: more than the sockets that a process can usually open.
_MAX_CONCURRENCY: Final = 100_000
#: The maximum concurrency for a plain function, which runs on threads. Above this number, more
#: threads cost more than they gain.
_MAX_THREADS: Final = 2_000

_MAP_BATCHES: Final = "map_batches"
#: The maximum number of records in a batch.
_MAX_RECORDS: Final = 100_000
#: The maximum number of concurrent calls of `map_batches` per task.
_MAX_BATCHES: Final = 1_000


def checked_mapper(
    operation: str,
    function: Callable[..., Any],
    *,
    with_key: bool,
    using: Callable[[], Any] | None = None,
) -> tuple[Callable[..., Any], bool]:
    """Check a mapper; return it, and whether it is a coroutine function.

    Args:
        using: a callable that returns a context manager, whose value becomes the first argument of
            the mapper; None for no resource.

    Raises:
        TypeError: the mapper has the wrong signature, or `using` cannot return a context manager.
    """
    if using is None:
        check_signature(operation, "mapper", function, "value", with_key=with_key)
    else:
        _check_using(operation, using)
        arguments = ("resource", "key", "value") if with_key else ("resource", "value")
        check_signature(operation, "mapper", function, *arguments)
    check_returns_value(operation, function)
    return function, is_asynchronous(function)


def _check_using(operation: str, using: Any) -> None:
    """Check that `using` can return a context manager.

    Raises:
        TypeError: `using` is not callable, takes arguments, or is a coroutine function or a
            generator function.
    """
    if not callable(using):
        raise type_error(
            f"{operation}() needs a class or a function as using=, which returns a context manager "
            f"on each worker, but got {type(using).__name__}: an open client cannot be sent to "
            "workers."
        )
    if is_asynchronous(using) or is_generator(using):
        kind, decorator = (
            ("an async def function", "asynccontextmanager")
            if is_asynchronous(using)
            else ("a generator function", "contextmanager")
        )
        raise type_error(
            f"{operation}() calls using= to get a context manager, but {name_of(using)} is {kind}. "
            f"Put @contextlib.{decorator} above it."
        )
    check_signature(operation, "using", using)


def check_returns_value(operation: str, function: Callable[..., Any]) -> None:
    """Reject callables that do not return the new value.

    Raises:
        TypeError: the function is a generator function, asynchronous or not, or a class with
            callable instances.
    """
    if is_async_generator(function):
        raise type_error(
            f"{operation}() awaits the result of its mapper, but {name_of(function)} is an "
            "asynchronous generator because it contains yield. Use return instead."
        )
    if is_generator(function):
        raise type_error(
            f"{operation}() takes a function that returns its result. "
            + generator_advice(name_of(function))
        )
    if isinstance(function, type) and any("__call__" in vars(each) for each in function.__mro__):
        raise type_error(
            f"{operation}() got the class {name_of(function)} as its mapper, and would only create "
            f"instances of it. Pass an instance: {name_of(function)}(...)."
        )


def config_error(problem: str) -> ConfigError:
    """Return a `ConfigError` that names the file and line of the declaration."""
    return ConfigError(problem, declared_at=call_site() or None)


def checked_concurrency(operation: str, concurrency: int, ordering: str) -> tuple[int, str]:
    """Return the concurrency and the ordering if both are valid.

    Raises:
        ConfigError: the concurrency or the ordering is not valid.
    """
    if type(concurrency) is not int or not 1 <= concurrency <= _MAX_CONCURRENCY:
        raise config_error(
            f"{operation}() needs a concurrency from 1 to {_MAX_CONCURRENCY}, but got "
            f"{concurrency!r}."
        )
    if ordering not in ORDERINGS:
        allowed = ", ".join(map(repr, ORDERINGS))
        raise config_error(
            f"{operation}() takes ordering= as one of {allowed}, but got {ordering!r}."
        )
    return concurrency, ordering


def checked_timeout(
    operation: str, function: Callable[..., Any], timeout: timedelta | None
) -> int | None:
    """Return the timeout in ms; None for no timeout.

    Raises:
        ConfigError: the timeout is not positive, or the function is not a coroutine function and
            cannot be canceled.
    """
    if timeout is None:
        return None
    try:
        timeout_ms = milliseconds(f"{operation}()", "timeout", timeout, min_ms=1)
    except ConfigError as error:
        error.declared_at = call_site() or None
        raise
    if not is_asynchronous(function):
        raise config_error(
            f"{operation}() got a timeout for a plain function, which cannot be canceled. Make it "
            "an async def function, or set a timeout on the calls inside the function."
        )
    return timeout_ms


def check_thread_count(operation: str, function: Callable[..., Any], concurrency: int) -> None:
    """Check that a plain function does not need too many threads.

    Raises:
        ConfigError: the concurrency is too high for a plain function.
    """
    if concurrency > _MAX_THREADS and not is_asynchronous(function):
        raise config_error(
            f"{operation}() calls a plain function on threads, and {concurrency} threads are too "
            f"many. Use a concurrency of at most {_MAX_THREADS}, or an async def function."
        )


def checked_batches(
    batches: MapBatches, concurrency: int | None, timeout: timedelta | None
) -> Operation:
    """Return the operation of `map_batches`.

    This is `MapBatches`, or `MapBatchesAsync` for an `async def` function.

    Raises:
        TypeError: the function has the wrong signature, or the schema is neither a schema nor a
            data type.
        ConfigError: a number is out of range, the schema has duplicate column names, or an option
            of coroutine functions is set for a plain function.
        ImportError: pyarrow is not installed.
    """
    check_signature(_MAP_BATCHES, "mapper", batches.function, "batch")
    check_returns_value(_MAP_BATCHES, batches.function)
    _check_integer("max_records", batches.max_records, _MAX_RECORDS)
    arrow = import_pyarrow(f"{_MAP_BATCHES}()")
    schema = batches.schema
    if schema is not None and not isinstance(schema, arrow.Schema | arrow.DataType):
        raise type_error(
            f"{_MAP_BATCHES}() takes a pyarrow.Schema of the columns as its schema, or the "
            f"pyarrow.DataType of the column 'value', but got {schema!r}."
        )
    if isinstance(schema, arrow.Schema) and len(set(schema.names)) < len(schema.names):
        raise config_error(
            f"{_MAP_BATCHES}() got a schema with duplicate column names: {', '.join(schema.names)}."
        )
    timeout_ms = checked_timeout(_MAP_BATCHES, batches.function, timeout)
    if not is_asynchronous(batches.function):
        if concurrency is not None:
            raise config_error(
                f"{_MAP_BATCHES}() got a concurrency for a plain function, which is called for one "
                "batch at a time. Make it an async def function, or leave concurrency out."
            )
        return batches
    if concurrency is not None:
        _check_integer("concurrency", concurrency, _MAX_BATCHES)
    return MapBatchesAsync(batches, concurrency or 1, timeout_ms)


def _check_integer(parameter: str, number: int, maximum: int) -> None:
    if type(number) is not int or not 1 <= number <= maximum:
        raise config_error(
            f"{_MAP_BATCHES}() needs a {parameter} from 1 to {maximum}, but got {number!r}."
        )
