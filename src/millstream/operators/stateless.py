"""Stateless operators: filter, map and similar (semantics: `KStream`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from operator import is_not
from types import GeneratorType
from typing import Any, TextIO

from millstream.async_checks import checked_effect
from millstream.errors import repr_of
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch, has_none
from millstream.operators.user_calls import call_each


class PassThroughOperator(Operator):
    """Forwards records unchanged: the node of a merge."""

    def process(self, batch: Batch, output: Output) -> None:
        output.emit(batch)


class FilterOperator(Operator):
    """Keeps the records for which the predicate holds or, if negated, does not hold."""

    def __init__(self, predicate: Callable[[Any, Any], Any], negate: bool = False) -> None:
        self._predicate = predicate
        self._negate = negate

    def process(self, batch: Batch, output: Output) -> None:
        matches, batch = call_each(self._predicate, (batch.keys, batch.values), batch, self.context)
        # A generator is truthy, so a generator function would match every record. Collecting the
        # types takes 25 ns per record.
        if GeneratorType in set(map(type, matches)):
            matches, batch = call_each(checked_effect, (matches,), batch, self.context)
        kept = batch.select([not match for match in matches] if self._negate else matches)
        if kept.keys:
            output.emit(kept)


class NullKeyFilterOperator(Operator):
    """Drops records without a key before a repartition topic."""

    def process(self, batch: Batch, output: Output) -> None:
        keys = batch.keys
        if has_none(keys):
            batch = batch.select([key is not None for key in keys])
            if not batch.keys:
                return
        output.emit(batch)


class MapValuesOperator(Operator):
    """Replaces each value with the mapper's result."""

    def __init__(self, mapper: Callable[..., Any], with_key: bool = False) -> None:
        self._mapper = mapper
        self._with_key = with_key

    def process(self, batch: Batch, output: Output) -> None:
        columns = (batch.keys, batch.values) if self._with_key else (batch.values,)
        values, batch = call_each(self._mapper, columns, batch, self.context)
        if values:
            output.emit(batch.with_values(values))


class SelectKeyOperator(Operator):
    """Replaces each key with the selector's result."""

    def __init__(self, selector: Callable[[Any, Any], Any]) -> None:
        self._selector = selector

    def process(self, batch: Batch, output: Output) -> None:
        keys, batch = call_each(self._selector, (batch.keys, batch.values), batch, self.context)
        if keys:
            output.emit(batch.with_keys(keys))


class MapOperator(Operator):
    """Replaces each record with the (key, value) pair that the mapper returns."""

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._mapper = mapper

    def process(self, batch: Batch, output: Output) -> None:
        columns = (batch.keys, batch.values)
        pairs, batch = call_each(self._mapper, columns, batch, self.context)
        if not _all_pairs(pairs):
            pairs, batch = call_each(_checked_pair, (pairs,), batch, self.context)
        if pairs:
            keys, values = map(list, zip(*pairs, strict=True))
            output.emit(batch.with_keys(keys).with_values(values))


class FlatMapOperator(Operator):
    """Replaces each record with any number of (key, value) pairs."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        self._mapper = mapper

    def process(self, batch: Batch, output: Output) -> None:
        columns = (batch.keys, batch.values)
        lists, batch = call_each(self._mapper, columns, batch, self.context)
        lists, batch = _to_lists(lists, batch, self.context)
        pairs = list(chain.from_iterable(lists))
        if not _all_pairs(pairs):
            lists, batch = call_each(_checked_pairs, (lists,), batch, self.context)
            pairs = list(chain.from_iterable(lists))
        if pairs:
            keys, values = map(list, zip(*pairs, strict=True))
            output.emit(batch.expand(list(map(len, lists)), keys, values))


class FlatMapValuesOperator(Operator):
    """Replaces each value with any number of values under the same key."""

    def __init__(self, mapper: Callable[..., Iterable[Any]], with_key: bool = False) -> None:
        self._mapper = mapper
        self._with_key = with_key

    def process(self, batch: Batch, output: Output) -> None:
        columns = (batch.keys, batch.values) if self._with_key else (batch.values,)
        lists, batch = call_each(self._mapper, columns, batch, self.context)
        lists, batch = _to_lists(lists, batch, self.context)
        values = list(chain.from_iterable(lists))
        if values:
            output.emit(batch.expand(list(map(len, lists)), None, values))


class PeekOperator(Operator):
    """Calls a function for each record and forwards the record."""

    def __init__(self, action: Callable[[Any, Any], Any]) -> None:
        self._action = action

    def process(self, batch: Batch, output: Output) -> None:
        batch = _call_action(self._action, batch, self.context)
        if batch.keys:
            output.emit(batch)


class ForEachOperator(Operator):
    """Calls a function for each record, and emits nothing."""

    def __init__(self, action: Callable[[Any, Any], Any]) -> None:
        self._action = action

    def process(self, batch: Batch, output: Output) -> None:
        _call_action(self._action, batch, self.context)


class PrintOperator(Operator):
    """Prints each record as `[label]: key, value`, to standard output or a file.

    Args:
        file: the path of a file to append to; None for the standard output of the worker.
    """

    def __init__(self, label: str, file: str | None = None) -> None:
        self._label = label
        self._path = file
        self._file: TextIO | None = None

    def process(self, batch: Batch, output: Output) -> None:
        if self._path is not None and self._file is None:
            self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 (closed in close)
        target = self._file or sys.stdout
        target.writelines(
            f"[{self._label}]: {_text(key)}, {_text(value)}\n"
            for key, value in zip(batch.keys, batch.values, strict=True)
        )
        target.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class BranchOperator(Operator):
    """Sends each record to the first branch with a matching predicate.

    Args:
        predicates: one for each branch.
        children: the node of each branch, None for a branch without one, and one more element if
            there is a default branch. Records that match no branch are discarded.
    """

    def __init__(
        self, predicates: tuple[Callable[[Any, Any], Any], ...], children: tuple[str | None, ...]
    ) -> None:
        self._predicates = predicates
        self._children = children

    def _choose(self, key: Any, value: Any) -> int:
        for position, predicate in enumerate(self._predicates):
            matches = predicate(key, value)
            if matches and (matches is True or checked_effect(matches)):
                return position
        return len(self._predicates)

    def process(self, batch: Batch, output: Output) -> None:
        columns = (batch.keys, batch.values)
        chosen, batch = call_each(self._choose, columns, batch, self.context)
        for position, child in enumerate(self._children):
            if child is None:
                continue
            taken = batch.select([choice == position for choice in chosen])
            if taken.keys:
                output.emit_to(child, taken)


def _call_action(
    action: Callable[[Any, Any], Any], batch: Batch, context: OperatorContext
) -> Batch:
    """Call a user function for its side effects. Returns the successful records."""
    results, batch = call_each(action, (batch.keys, batch.values), batch, context)
    # Coroutines and generators would otherwise go unnoticed. This check takes 14 ns per record,
    # compared to 140 ns for checking each result.
    if any(map(is_not, results, repeat(None))):
        _, batch = call_each(checked_effect, (results,), batch, context)
    return batch


def _all_pairs(results: list[Any]) -> bool:
    # Two passes in C take 40 ns per record, compared to 130 ns for calling a Python function.
    return set(map(type, results)) <= {tuple} and set(map(len, results)) <= {2}


def _checked_pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"A mapper must return (key, value) tuples, but returned {type(result).__name__}: "
            f"{repr_of(result)}."
        )
    return result


def _checked_pairs(results: list[Any]) -> list[tuple[Any, Any]]:
    return [_checked_pair(result) for result in results]


def _to_lists(
    results: list[Any], batch: Batch, context: OperatorContext
) -> tuple[list[list[Any]], Batch]:
    """Convert the results of a flat mapper to lists.

    Generators run here, record by record.
    """
    if set(map(type, results)) <= {list}:
        return results, batch
    return call_each(_to_list, (results,), batch, context)


def _to_list(result: Any) -> list[Any]:
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        raise TypeError(
            "A flat mapper must return an iterable of results (an empty list for none), "
            f"but returned {type(result).__name__}: {repr_of(result)}."
        )
    return list(result)


def _text(value: Any) -> str:
    return "null" if value is None else str(value)
