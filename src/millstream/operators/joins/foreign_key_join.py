"""Foreign-key join, the steps at the right table and the last one, back at the left table.

`foreign_key_send` shows how they hang together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.operators.batch import Batch
from millstream.operators.joins.foreign_key_formats import (
    Instruction,
    Response,
    Subscription,
    combined_key,
    decode_subscription,
    encode_subscription,
    subscription_prefix,
)
from millstream.operators.joins.foreign_key_send import ForeignKeySerdes, OpenedSerdes
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.tables.value_getter import GetterSupplier, ValueGetter
from millstream.operators.usable import newest_changes, with_keys
from millstream.state.buffers.subscription_store import SubscriptionTable

_DELETE_QUIETLY: Final = int(Instruction.DELETE_QUIETLY)
_DELETE_AND_RESPOND: Final = int(Instruction.DELETE_AND_RESPOND)
_RESPOND: Final = int(Instruction.RESPOND)
_RESPOND_IF_FOUND: Final = int(Instruction.RESPOND_IF_FOUND)


class SubscriptionReceiveOperator(Operator):
    """Keeps subscriptions, or forgets them, and hands them on.

    Args:
        store: the name of the store of subscriptions.
        serdes: serialize the foreign keys.
    """

    def __init__(self, store: str, serdes: ForeignKeySerdes) -> None:
        self._store = store
        self._serdes = serdes
        self._opened: OpenedSerdes
        self._table: SubscriptionTable

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._opened = self._serdes.opened(context)
        self._table = context.store(self._store)

    def process(self, batch: Batch, output: Output) -> None:
        kept: list[int] = []
        stored: list[int] = []
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for index, (foreign_key, subscription) in enumerate(
            zip(batch.keys, batch.values, strict=True)
        ):
            if foreign_key is None:
                # It refers to no row: there is nothing to keep, but a left join has a result.
                if subscription.instruction == _RESPOND:
                    kept.append(index)
                else:
                    self.context.dropped(1, "their foreign key is null")
                continue
            try:
                key, value = self._encoded(foreign_key, subscription)
            except Exception as error:
                self.context.failed(batch, index, error)
                continue
            stored.append(index)
            keys.append(key)
            values.append(value)
            kept.append(index)
        if stored:
            self._keep(batch if len(stored) == len(batch) else batch.take(stored), keys, values)
        if kept:
            output.emit(batch if len(kept) == len(batch) else batch.take(kept))

    def _encoded(self, foreign_key: Any, subscription: Subscription) -> tuple[bytes, bytes | None]:
        foreign_bytes = self._opened.foreign_key_bytes(foreign_key) or b""
        forget = subscription.instruction in (_DELETE_QUIETLY, _DELETE_AND_RESPOND)
        return (
            combined_key(foreign_bytes, subscription.primary_key),
            None if forget else encode_subscription("", subscription),
        )

    def _keep(self, batch: Batch, keys: list[bytes], values: list[bytes | None]) -> None:
        self._table.put_many(keys, values, batch.timestamps, batch.all_headers())


class SubscriptionJoinOperator(Operator):
    """Answers subscriptions with the right row as it is now.

    Args:
        right: reads the right table.
    """

    def __init__(self, right: GetterSupplier) -> None:
        self._supplier = right
        self._right: ValueGetter

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._right = self._supplier.make(context)

    def process(self, batch: Batch, output: Output) -> None:
        answered: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        timestamps: list[int] = []
        rows = self._right.read_ahead(batch.keys)
        for index, (foreign_key, subscription, timestamp) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ):
            if rows is not None:
                found = rows[index]
            else:
                try:
                    found = None if foreign_key is None else self._right.get(foreign_key)
                except Exception as error:
                    self.context.failed(batch, index, error)
                    continue
            value, found_at = found or (None, timestamp)
            instruction = subscription.instruction
            if instruction == _DELETE_AND_RESPOND:
                value = None
            elif instruction == _DELETE_QUIETLY or (
                instruction == _RESPOND_IF_FOUND and found is None
            ):
                continue
            answered.append(index)
            keys.append(subscription.primary_key)
            values.append(Response(subscription.value_hash, value, subscription.partition))
            timestamps.append(max(timestamp, found_at))
        if answered:
            done = batch.take(answered)
            output.emit(done.with_keys(keys).with_changes(values, None, timestamps))

    def close(self) -> None:
        self._right.close()


class ForeignTableJoinOperator(Operator):
    """Tells all left rows that refer to a right row when it changes.

    Args:
        store: the name of the store of subscriptions.
        serdes: serialize the keys of right rows.
        versioned: whether the right table is, and so may give changes that are not the newest.
    """

    def __init__(self, store: str, serdes: ForeignKeySerdes, *, versioned: bool) -> None:
        self._store = store
        self._serdes = serdes
        self._versioned = versioned
        self._opened: OpenedSerdes
        self._table: SubscriptionTable

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._opened = self._serdes.opened(context)
        self._table = context.store(self._store)

    def process(self, batch: Batch, output: Output) -> None:
        batch = with_keys(batch, self.context)
        if self._versioned:
            batch = newest_changes(batch, self.context)
        counts: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        for index, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            try:
                prefix = subscription_prefix(self._opened.foreign_key_bytes(key) or b"")
                found = self._table.scan(prefix)
            except Exception as error:
                self.context.failed(batch, index, error)
                found = []
            counts.append(len(found))
            for stored_key, data in found:
                subscription = decode_subscription("", data)
                keys.append(stored_key[len(prefix) :])
                values.append(Response(subscription.value_hash, value, subscription.partition))
        if keys:
            output.emit(batch.expand(counts, keys, values))


class ResponseResolverOperator(Operator):
    """Joins left rows with what they refer to, unless they have changed since they asked.

    Args:
        left: reads the left table.
        serdes: serialize left rows, to hash them.
        joiner: (left value, right value) → result.
        left_join: whether left rows without a right row have a result.
    """

    def __init__(
        self,
        left: GetterSupplier,
        serdes: ForeignKeySerdes,
        joiner: Callable[[Any, Any], Any],
        *,
        left_join: bool,
    ) -> None:
        self._supplier = left
        self._serdes = serdes
        self._joiner = joiner
        self._left_join = left_join
        self._opened: OpenedSerdes
        self._left: ValueGetter

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._opened = self._serdes.opened(context)
        self._left = self._supplier.make(context)

    def process(self, batch: Batch, output: Output) -> None:
        kept: list[int] = []
        results: list[Any] = []
        outdated = 0
        rows = self._left.read_ahead(batch.keys)
        for index, (key, response) in enumerate(zip(batch.keys, batch.values, strict=True)):
            try:
                found = self._left.get(key) if rows is None else rows[index]
                value = None if found is None else found[0]
                if self._opened.hash_of(value) != response.value_hash:
                    outdated += 1
                    continue
                if response.value is None and (found is None or not self._left_join):
                    result = None
                else:
                    result = self._joiner(value, response.value)
            except Exception as error:
                self.context.failed(batch, index, error)
                continue
            kept.append(index)
            results.append(result)
        if outdated:
            self.context.dropped(outdated, "the left rows have changed since they asked")
        if kept:
            done = batch if len(kept) == len(batch) else batch.take(kept)
            output.emit(done.with_values(results))

    def close(self) -> None:
        self._left.close()
