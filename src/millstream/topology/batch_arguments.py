"""Refusing wrong arguments of `map_batches` where it is declared."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from millstream.operators.arrow import imported_pyarrow
from millstream.topology.arguments import checked_arguments, wrong_type
from millstream.topology.async_arguments import (
    checked_timeout,
    refuse_what_gives_no_value,
    wrong_setting,
)
from millstream.topology.operations.operation import Operation
from millstream.topology.operations.streams import MapBatches, MapBatchesAsync
from millstream.unawaited import is_asynchronous

_NAME: Final = "map_batches"
#: More than a partition may have in flight.
_MOST_RECORDS: Final = 100_000
_MOST_CONCURRENT: Final = 1_000


def checked_batches(
    batches: MapBatches, concurrency: int | None, timeout: timedelta | None
) -> Operation:
    """The operation, as it is for the kind of its function.

    Args:
        batches: with a plain function, or an `async def` one.
        concurrency: how many of the latter's calls there are at a time; None for one.
        timeout: of these.

    Raises:
        TypeError: the function cannot be called so, or the schema is none.
        ConfigError: a number cannot be, or is given for a plain function.
        ImportError: pyarrow is not installed.
    """
    checked_arguments(_NAME, "mapper", batches.function, "batch")
    refuse_what_gives_no_value(_NAME, batches.function)
    _check_whole("max_records", batches.max_records, _MOST_RECORDS)
    arrow = imported_pyarrow(f"{_NAME}()")
    schema = batches.schema
    if schema is not None and not isinstance(schema, arrow.Schema | arrow.DataType):
        raise wrong_type(
            f"{_NAME}() takes a pyarrow.Schema of the columns as its schema, or the "
            f"pyarrow.DataType of the column 'value', but got {schema!r}."
        )
    if isinstance(schema, arrow.Schema) and len(set(schema.names)) < len(schema.names):
        raise wrong_setting(
            f"{_NAME}() got a schema with several columns of one name: {', '.join(schema.names)}."
        )
    timeout_ms = checked_timeout(_NAME, batches.function, timeout)
    if not is_asynchronous(batches.function):
        if concurrency is not None:
            raise wrong_setting(
                f"{_NAME}() got a concurrency for a plain function, which is called for one batch "
                "after the other. Make it an async def function, or leave concurrency out."
            )
        return batches
    if concurrency is not None:
        _check_whole("concurrency", concurrency, _MOST_CONCURRENT)
    return MapBatchesAsync(batches, concurrency or 1, timeout_ms)


def _check_whole(parameter: str, number: int, most: int) -> None:
    if type(number) is not int or not 1 <= number <= most:
        raise wrong_setting(f"{_NAME}() needs a {parameter} from 1 to {most}, but got {number!r}.")
