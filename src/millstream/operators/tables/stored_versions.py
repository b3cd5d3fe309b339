"""The changes that a versioned store took, as a batch that goes downstream."""

from __future__ import annotations

from typing import Any

from millstream.operators.batch import Batch
from millstream.operators.operator import Output
from millstream.state.versioned.versions import NOT_PUT, VALID_TO_UNDEFINED


class StoredVersions:
    """Collects, for the records of a batch, what was put to a versioned store.

    Args:
        batch: the records.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._kept: list[int] = []
        self._values: list[Any] = []
        self._old_values: list[Any] = []
        self._timestamps: list[int] = []
        self._latest: list[bool] = []

    def add(self, index: int, value: Any, old_value: Any, timestamp: int, valid_to: int) -> None:
        """Note a version, unless the store refused it as older than its history.

        Args:
            index: of the record.
            value: the new value.
            old_value: what it replaces.
            timestamp: of the version.
            valid_to: what the store answered.
        """
        if valid_to == NOT_PUT:
            return
        self._kept.append(index)
        self._values.append(value)
        self._old_values.append(old_value)
        self._timestamps.append(timestamp)
        self._latest.append(valid_to == VALID_TO_UNDEFINED)

    def emit(self, output: Output, send_old_values: bool) -> None:
        """Hand the changes on, each with whether it is the newest of its key."""
        if not self._kept:
            return
        batch = self._batch
        kept = batch if len(self._kept) == len(batch) else batch.take(self._kept)
        changes = kept.with_changes(
            self._values, self._old_values if send_old_values else None, self._timestamps
        )
        changes.is_latest = self._latest
        output.emit(changes)
