"""Which records of a batch an operator can work on; the others are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from millstream.operators.batch import Batch, has_none
from millstream.operators.calls import serialize_each
from millstream.operators.operator import OperatorContext

#: Why records are dropped.
NO_KEY: Final = "their key is null"
INCOMPLETE: Final = "their key or value is null"
_NOT_NEWEST: Final = "they are older than the values of their keys"


class WithKeys(Protocol):
    """A table that serializes its keys."""

    @property
    def encode_keys(self) -> Callable[[Sequence[Any]], list[bytes]]: ...


def with_keys(batch: Batch, context: OperatorContext) -> Batch:
    """The records that have a key."""
    keys = batch.keys
    if not has_none(keys):
        return batch
    return _kept(batch, [key is not None for key in keys], NO_KEY, context)


def complete(batch: Batch, context: OperatorContext) -> Batch:
    """The records that have a key and a value."""
    keys, values = batch.keys, batch.values
    if not has_none(keys) and not has_none(values):
        return batch
    keep = [k is not None and v is not None for k, v in zip(keys, values, strict=True)]
    return _kept(batch, keep, INCOMPLETE, context)


def newest_changes(batch: Batch, context: OperatorContext) -> Batch:
    """The changes of a versioned table that are the newest of their keys (KIP-914)."""
    newest = batch.is_latest
    if newest is None or all(newest):
        return batch
    return _kept(batch, newest, _NOT_NEWEST, context)


def with_key_bytes(
    batch: Batch, table: WithKeys, context: OperatorContext
) -> tuple[list[bytes], Batch]:
    """The serialized keys, and the records that have one.

    A record whose key does not fit the serde is one that user code failed on.

    Args:
        batch: records with keys.
        table: whose serde it is.
        context: of the operator.
    """
    key_bytes, keep = serialize_each(
        table.encode_keys, batch.keys, lambda index, error: context.failed(batch, index, error)
    )
    return key_bytes, batch if keep is None else batch.select(keep)


def _kept(batch: Batch, keep: Sequence[bool], why: str, context: OperatorContext) -> Batch:
    context.dropped(len(keep) - sum(keep), why)
    return batch.select(keep)
