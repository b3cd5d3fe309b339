"""What the records of a batch give, any number each, on its way downstream."""

from __future__ import annotations

from typing import Any

from millstream.operators.batch import Batch, Order
from millstream.operators.operator import Output


class Results:
    """Results of the records of a batch, in the order of the records: parallel lists.

    Args:
        batch: the records.
        with_old_values: whether results are changes that go with what they replace.
    """

    __slots__ = ("batch", "indices", "keys", "old_values", "timestamps", "values")

    def __init__(self, batch: Batch, *, with_old_values: bool = False) -> None:
        self.batch = batch
        #: For each result the index of the record that caused it.
        self.indices: list[int] = []
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[int] = []
        self.old_values: list[Any] | None = [] if with_old_values else None

    def add(self, index: int, key: Any, value: Any, timestamp: int, old_value: Any = None) -> None:
        """A result of the record at an index."""
        self.indices.append(index)
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)
        if self.old_values is not None:
            self.old_values.append(old_value)

    def emit(self, output: Output, *, keeps_headers: bool = True) -> None:
        """Hand the results on, each with where its record was read.

        Args:
            output: where they go.
            keeps_headers: whether they carry the headers of their records.
        """
        indices, batch = self.indices, self.batch
        if not indices:
            return
        rows, headers = batch.rows, batch.headers
        new_headers = None if headers is None else [headers[index] for index in indices]
        if not keeps_headers and (headers is not None or batch.origin.headers is not None):
            new_headers = [()] * len(indices)
        output.emit(
            Batch(
                self.keys,
                self.values,
                self.timestamps,
                [rows[index] for index in indices],
                batch.origin,
                self._places(),
                new_headers,
                self.old_values,
            )
        )

    def _places(self) -> list[Order] | None:
        """Places in depth-first order: that of the record, then which of its results it is."""
        order = self.batch.order
        if order is None:
            return None
        places: list[Order] = []
        previous, number = -1, 0
        for index in self.indices:
            number = number + 1 if index == previous else 0
            previous = index
            places.append((*order[index], number))
        return places
