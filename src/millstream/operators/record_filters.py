"""Filters for records that an operator cannot process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.operators.operator import OperatorContext
from millstream.operators.record_batch import Batch, has_none
from millstream.operators.user_calls import serialize_each
from millstream.state.keyvalue.key_value_table import EncodedTable

#: Reasons for dropping records.
NO_KEY: Final = "their key is null"
INCOMPLETE: Final = "their key or value is null"
_NOT_LATEST: Final = "they are older than the latest versions of their keys"


def with_keys(batch: Batch, context: OperatorContext) -> Batch:
    keys = batch.keys
    if not has_none(keys):
        return batch
    return _selected(batch, [key is not None for key in keys], NO_KEY, context)


def with_keys_and_values(batch: Batch, context: OperatorContext) -> Batch:
    keys, values = batch.keys, batch.values
    if not has_none(keys) and not has_none(values):
        return batch
    keep = [k is not None and v is not None for k, v in zip(keys, values, strict=True)]
    return _selected(batch, keep, INCOMPLETE, context)


def latest_changes(batch: Batch, context: OperatorContext) -> Batch:
    """Return a versioned table's changes that are the latest of their keys (KIP-914)."""
    newest = batch.is_latest
    if newest is None or all(newest):
        return batch
    return _selected(batch, newest, _NOT_LATEST, context)


def with_key_bytes(
    batch: Batch, table: EncodedTable, context: OperatorContext
) -> tuple[list[bytes], Batch]:
    """Return the serialized keys, and their records.

    A key that the serde rejects counts as a failure of user code.
    """
    key_bytes, keep = serialize_each(
        table.encode_keys, batch.keys, lambda index, error: context.failed(batch, index, error)
    )
    return key_bytes, batch if keep is None else batch.select(keep)


def _selected(batch: Batch, keep: Sequence[bool], why: str, context: OperatorContext) -> Batch:
    context.dropped(len(keep) - sum(keep), why)
    return batch.select(keep)
