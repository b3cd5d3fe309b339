"""Operations on streams that remember nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from millstream.topology.operations.operation import ApartOperation, Operation


@dataclass(frozen=True)
class PassThrough(Operation):
    """Hands on what it gets: a merge, or the head of a branch."""


@dataclass(frozen=True)
class NullKeyFilter(Operation):
    """Keeps records out of a repartition topic that have no key to be placed by."""


@dataclass(frozen=True)
class Filter(Operation):
    """Keeps the records for which the predicate holds.

    Args:
        predicate: (key, value) → whether a record stays.
        negate: whether it stays otherwise.
    """

    predicate: Callable[[Any, Any], Any]
    negate: bool = False


@dataclass(frozen=True)
class Map(Operation):
    """Replaces each record.

    Args:
        mapper: (key, value) → (key, value).
    """

    mapper: Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class MapValues(Operation):
    """Replaces each value.

    Args:
        mapper: value → value, or (key, value) → value.
        with_key: which of the two.
    """

    mapper: Callable[..., Any]
    with_key: bool = False


@dataclass(frozen=True)
class MapAsync(ApartOperation):
    """Replaces each value by what a function gives that may wait, many records at a time.

    Args:
        function: value → value, or (key, value) → value; or a coroutine of it.
        is_coroutine: which of the two.
        with_key: whether it takes the key.
        concurrency: how many calls there are at a time.
        ordering: "key", "none" or "partition".
        timeout_ms: after how long a call is given up; None for never.
        using: makes what the function gets before its other arguments; None for nothing.
    """

    function: Callable[..., Any]
    is_coroutine: bool
    with_key: bool
    concurrency: int
    ordering: str
    timeout_ms: int | None
    using: Callable[[], Any] | None = None


@dataclass(frozen=True)
class MapBatches(Operation):
    """Replaces each value, many at a time, by what a function of Arrow columns gives.

    Args:
        function: a record batch of pyarrow → one, a table, an array.
        schema: a schema or a data type of pyarrow; None to go by the values.
        with_key: whether the keys are a column.
        with_timestamp: whether the times are a column.
        max_records: how many records are in one at most.
    """

    function: Callable[[Any], Any]
    schema: Any
    with_key: bool
    with_timestamp: bool
    max_records: int


@dataclass(frozen=True)
class MapBatchesAsync(ApartOperation):
    """The same with a function that is awaited.

    Args:
        batches: what the function takes and gives.
        concurrency: how many batches there are at a time.
        timeout_ms: after how long a call is given up; None for never.
    """

    batches: MapBatches
    concurrency: int
    timeout_ms: int | None


@dataclass(frozen=True)
class SelectKey(Operation):
    """Replaces each key.

    Args:
        selector: (key, value) → key.
    """

    selector: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class FlatMap(Operation):
    """Replaces each record by any number of records.

    Args:
        mapper: (key, value) → (key, value) pairs.
    """

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]


@dataclass(frozen=True)
class FlatMapValues(Operation):
    """Replaces each value by any number of values.

    Args:
        mapper: value → values, or (key, value) → values.
        with_key: which of the two.
    """

    mapper: Callable[..., Iterable[Any]]
    with_key: bool = False


@dataclass(frozen=True)
class Peek(Operation):
    """Shows each record to a function and hands it on.

    Args:
        action: (key, value) → anything.
    """

    action: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class ForEach(Operation):
    """Shows each record to a function; the stream ends here.

    Args:
        action: (key, value) → anything.
    """

    action: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Print(Operation):
    """Prints each record; the stream ends here.

    Args:
        label: what stands before it in brackets.
        file: the path of a file to append to; None for the worker's standard output.
    """

    label: str
    file: str | None = None


@dataclass(frozen=True)
class Branch(Operation):
    """Sends each record to the first branch whose predicate holds.

    Args:
        predicates: (key, value) → whether a branch takes a record; one for each branch.
        children: the node of each branch, None where it leads nowhere; one more than there are
            predicates if there is a default branch.
    """

    predicates: tuple[Callable[[Any, Any], Any], ...]
    children: tuple[str | None, ...]
