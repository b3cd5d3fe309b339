"""The operator of `map_batches` with a plain function: many values at a time, as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from millstream.operators.arrow import ArrowFormat, answered
from millstream.operators.batch import Batch
from millstream.operators.operator import Operator, Output


class MapBatchesOperator(Operator):
    """Replaces each value by what the function gives for it.

    Args:
        function: the user's, of a `pyarrow.RecordBatch`.
        arrow: how records become one, and results values.
        most: how many records are in one at most.
    """

    def __init__(self, function: Callable[[Any], Any], arrow: ArrowFormat, most: int) -> None:
        self._function = function
        self._arrow = arrow
        self._most = most

    def process(self, batch: Batch, output: Output) -> None:
        """Call the function for one part of the batch after the other."""
        most, count = self._most, len(batch)
        for start in range(0, count, most):
            part = batch if count <= most else batch.take(range(start, min(start + most, count)))
            mapped, _ = answered(part, self._called(part), partial(self.context.failed, part))
            if mapped.keys:
                output.emit(mapped)

    def _called(self, batch: Batch) -> Sequence[Any] | Exception:
        count = sum(value is not None for value in batch.values)
        if not count:
            return []
        try:
            columns = self._arrow.columns(batch)
            return self._arrow.values(self._function(columns), count)
        except Exception as error:
            return error
