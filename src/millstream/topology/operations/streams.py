"""Stateless operations on streams, the Processor API, and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from millstream.subscriptions.subscription_plan import SubscriptionPart
from millstream.topology.operations.operation import ConcurrentOperation, Operation


@dataclass(frozen=True)
class PassThrough(Operation):
    """Forwards records unchanged: a merge, or the head of a branch."""


@dataclass(frozen=True)
class NullKeyFilter(Operation):
    """Drops records without a key before a repartition topic."""


@dataclass(frozen=True)
class Filter(Operation):
    """Keeps the records for which the predicate holds or, with `negate`, the others."""

    predicate: Callable[[Any, Any], Any]
    negate: bool = False


@dataclass(frozen=True)
class Map(Operation):
    """Replaces each record."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class MapValues(Operation):
    """Replaces each value with the result of a function.

    The function takes the value, or the key and the value.
    """

    mapper: Callable[..., Any]
    with_key: bool = False


@dataclass(frozen=True)
class MapAsync(ConcurrentOperation):
    """Replaces each value with the result of a function; several calls are in flight."""

    #: value → value, or (key, value) → value; may be a coroutine function.
    function: Callable[..., Any]
    is_coroutine: bool
    with_key: bool
    #: The maximum number of concurrent calls.
    concurrency: int
    #: "key", "none" or "partition".
    ordering: str
    timeout_ms: int | None
    #: Returns a context manager, whose value is passed to the function as its first argument.
    using: Callable[[], Any] | None = None


@dataclass(frozen=True)
class MapBatches(Operation):
    """Replaces the values of a batch with the result of a function on Arrow columns."""

    #: `pyarrow.RecordBatch` → a record batch, a table or an array.
    function: Callable[[Any], Any]
    #: A pyarrow schema or data type; None to infer it from the values.
    schema: Any
    #: Whether the batch has columns for keys and timestamps.
    with_key: bool
    with_timestamp: bool
    max_records: int


@dataclass(frozen=True)
class MapBatchesAsync(ConcurrentOperation):
    """`MapBatches` with a coroutine function, and several calls in flight."""

    batches: MapBatches
    concurrency: int
    timeout_ms: int | None


@dataclass(frozen=True)
class SelectKey(Operation):
    """Replaces each key."""

    selector: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class FlatMap(Operation):
    """Replaces each record with any number of records."""

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]


@dataclass(frozen=True)
class FlatMapValues(Operation):
    """Replaces each value with any number of values."""

    mapper: Callable[..., Iterable[Any]]
    with_key: bool = False


@dataclass(frozen=True)
class Peek(Operation):
    """Calls a function for each record and forwards the record."""

    action: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class ForEach(Operation):
    """Calls a function for each record; the stream ends here."""

    action: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Print(Operation):
    """Prints each record after a label in brackets; the stream ends here."""

    label: str
    #: The path of a file to append to; None for the worker's standard output.
    file: str | None = None


@dataclass(frozen=True)
class Branch(Operation):
    """Sends each record to the first branch whose predicate holds."""

    predicates: tuple[Callable[[Any, Any], Any], ...]
    #: The child node of each branch, or None for a branch without consumers. With a default branch,
    #: there is one more child than there are predicates.
    children: tuple[str | None, ...]


@dataclass(frozen=True)
class Process(Operation):
    """Runs the `Processor` or `FixedKeyProcessor` that the supplier returns."""

    supplier: Callable[[], Any]
    fixed_key: bool = False


@dataclass(frozen=True)
class Subscribe(ConcurrentOperation):
    """Processes the tasks of a subscription, for one of its topics."""

    part: SubscriptionPart
