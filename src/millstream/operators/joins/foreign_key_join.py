"""Foreign-key joins: left rows subscribe to the right rows that they refer to.

    left table ──► SubscriptionSend ──(subscriptions)──► SubscriptionReceive ──► SubscriptionJoin ─┐
                                                              │ store                              │
                                       right table ──► ForeignTableJoin ───────────────────────────┤
    result ◄── ResponseResolver ◄──────────────(responses)─────────────────────────────────────────┘

The two tables are partitioned by different keys, so subscriptions are sent through a topic to the
tasks that own the right rows (KIP-213).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import ConfigError
from millstream.operators.joins.foreign_key_formats import (
    ForeignKeyResponse,
    ForeignKeySubscription,
    Instruction,
    combined_key,
    decode_subscription,
    encode_subscription,
    murmur3_128,
    subscription_prefix,
)
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch
from millstream.operators.record_filters import latest_changes, with_keys
from millstream.operators.tables.value_getter import GetterSupplier, ValueGetter
from millstream.serdes import Serde
from millstream.state.buffers.join_stores import SubscriptionTable

#: A message to the owner of a right row: foreign key, instruction.
SubscriptionMessage = tuple[Any, int]

#: Equal objects of these types have equal bytes with every serde.
_PLAIN_TYPES: Final = frozenset((str, bytes, int))

_DELETE_QUIETLY: Final = int(Instruction.DELETE_QUIETLY)
_DELETE_AND_RESPOND: Final = int(Instruction.DELETE_AND_RESPOND)
_RESPOND: Final = int(Instruction.RESPOND)
_RESPOND_IF_FOUND: Final = int(Instruction.RESPOND_IF_FOUND)


@dataclass(frozen=True)
class ForeignKeySerdes:
    """The serdes with which a foreign-key join compares keys and hashes values.

    None means the configured default.
    """

    #: The name without the application ID.
    subscription_topic: str
    primary_key: Serde[Any] | None
    foreign_key: Serde[Any] | None
    value: Serde[Any] | None
    #: The file and line of the user's program at which the join was declared.
    declared_at: str = field(default="", compare=False)

    def resolved(self, context: OperatorContext) -> ResolvedSerdes:
        """Return the serdes of a task.

        Raises:
            ConfigError: neither the table nor the configuration has a serde.
        """
        return ResolvedSerdes(
            f"{context.config.application_id}-{self.subscription_topic}",
            self.primary_key or self._default(context, "key", "left"),
            self.foreign_key or self._default(context, "key", "right"),
            self.value or self._default(context, "value", "left"),
        )

    def _default(self, context: OperatorContext, what: str, side: str) -> Serde[Any]:
        config = context.config
        default = config.default_key_serde if what == "key" else config.default_value_serde
        serde: Serde[Any] | None = default
        if serde is None:
            where = f" The join was declared at {self.declared_at}." if self.declared_at else ""
            raise ConfigError(
                f"A foreign-key join needs the {what} serde of its {side} table: pass {what}=... "
                f"where the table is read, or Materialized({what}=...) where it is created, or "
                f"set default_{what}_serde.{where}",
                node=context.node,
            )
        return serde


class ResolvedSerdes:
    """The serdes of a foreign-key join in a task.

    As in Kafka Streams, the serdes are called with pseudo topics, because the data is never an
    entire key or value of a real topic. The names matter to serdes that name schemas after topics.
    """

    def __init__(
        self, topic: str, primary_key: Serde[Any], foreign_key: Serde[Any], value: Serde[Any]
    ) -> None:
        self._primary_topic, self._primary_key = f"{topic}-pk", primary_key
        self._foreign_topic, self._foreign_key = f"{topic}-fk", foreign_key
        self._value_topic, self._value = f"{topic}-vh", value

    def primary_key_bytes(self, key: Any) -> bytes:
        return self._primary_key.serialize(self._primary_topic, key) or b""

    def foreign_key_bytes(self, key: Any) -> bytes | None:
        return self._foreign_key.serialize(self._foreign_topic, key)

    def hash_of(self, value: Any) -> bytes | None:
        data = self._value.serialize(self._value_topic, value)
        return None if data is None else murmur3_128(data)


class SubscriptionSendOperator(Operator):
    """Sends subscriptions of left rows to the owners of right rows.

    Also cancels old subscriptions. Processes the changes of the left table, which include the
    replaced values.
    """

    def __init__(
        self,
        foreign_key: Callable[[Any, Any], Any],
        serdes: ForeignKeySerdes,
        *,
        left_join: bool,
        versioned: bool,
    ) -> None:
        self._foreign_key = foreign_key
        self._serdes = serdes
        self._left_join = left_join
        self._versioned = versioned
        self._resolved: ResolvedSerdes

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._resolved = self._serdes.resolved(context)

    def process(self, batch: Batch, output: Output) -> None:
        if self._versioned:
            batch = latest_changes(batch, self.context)
        messages_of = self._left_messages if self._left_join else self._inner_messages
        # Follows Kafka Streams, except that the partition is that of the task instead of the
        # record: both are equal, and records of punctuators have no partition.
        partition = self.context.task_id.partition
        resolved = self._resolved
        counts: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        old_values = batch.old_values or [None] * len(batch)
        for index, (key, new, old) in enumerate(
            zip(batch.keys, batch.values, old_values, strict=True)
        ):
            try:
                messages = messages_of(key, new, old)
                if messages:
                    value_hash = resolved.hash_of(new)
                    key_bytes = resolved.primary_key_bytes(key)
            except Exception as error:
                self.context.failed(batch, index, error)
                messages = ()
            counts.append(len(messages))
            for foreign_key, instruction in messages:
                keys.append(foreign_key)
                values.append(ForeignKeySubscription(value_hash, instruction, key_bytes, partition))
        if keys:
            output.emit(batch.expand(counts, keys, values))

    def _inner_messages(self, key: Any, new: Any, old: Any) -> tuple[SubscriptionMessage, ...]:
        before = None if old is None else self._foreign_key(key, old)
        if new is None:
            return () if before is None else ((before, _DELETE_AND_RESPOND),)
        after = self._foreign_key(key, new)
        if after is None:
            self.context.dropped(1, "the foreign key is null")
            return () if before is None else ((before, _DELETE_AND_RESPOND),)
        if before is None or not self._differ(after, before):
            return ((after, _RESPOND_IF_FOUND),)
        return ((before, _DELETE_QUIETLY), (after, _RESPOND))

    def _left_messages(self, key: Any, new: Any, old: Any) -> tuple[SubscriptionMessage, ...]:
        if old is None and new is None:
            return ()
        before = None if old is None else self._foreign_key(key, old)
        after = None if new is None else self._foreign_key(key, new)
        if before is not None and self._differ(after, before):
            # The old subscription is deleted separately, because the task that owns the new right
            # row may not be the one that stores the old subscription.
            return ((before, _DELETE_QUIETLY), (after, _RESPOND))
        return ((after, _RESPOND),)

    def _differ(self, after: Any, before: Any) -> bool:
        kind = type(after)
        if kind in _PLAIN_TYPES and kind is type(before) and after == before:
            return False
        to_bytes = self._resolved.foreign_key_bytes
        return to_bytes(after) != to_bytes(before)


class SubscriptionReceiveOperator(Operator):
    """Stores or deletes subscriptions, and forwards them."""

    def __init__(self, store: str, serdes: ForeignKeySerdes) -> None:
        self._store = store
        self._serdes = serdes
        self._resolved: ResolvedSerdes
        self._table: SubscriptionTable

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._resolved = self._serdes.resolved(context)
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
                # Without a foreign key, nothing is stored, but a left join has a result.
                if subscription.instruction == _RESPOND:
                    kept.append(index)
                else:
                    self.context.dropped(1, "the foreign key is null")
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
            done = batch if len(stored) == len(batch) else batch.take(stored)
            self._table.put_many(keys, values, done.timestamps, done.all_headers())
        if kept:
            output.emit(batch if len(kept) == len(batch) else batch.take(kept))

    def _encoded(
        self, foreign_key: Any, subscription: ForeignKeySubscription
    ) -> tuple[bytes, bytes | None]:
        foreign_bytes = self._resolved.foreign_key_bytes(foreign_key) or b""
        delete = subscription.instruction in (_DELETE_QUIETLY, _DELETE_AND_RESPOND)
        return (
            combined_key(foreign_bytes, subscription.primary_key),
            None if delete else encode_subscription("", subscription),
        )


class SubscriptionJoinOperator(Operator):
    """Responds to subscriptions with the current values of right rows."""

    def __init__(self, right: GetterSupplier) -> None:
        self._supplier = right
        self._right: ValueGetter

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._right = self._supplier.make(context)

    def process(self, batch: Batch, output: Output) -> None:
        responded: list[int] = []
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
            responded.append(index)
            keys.append(subscription.primary_key)
            values.append(
                ForeignKeyResponse(subscription.value_hash, value, subscription.partition)
            )
            timestamps.append(max(timestamp, found_at))
        if responded:
            done = batch.take(responded)
            output.emit(done.with_keys(keys).with_changes(values, None, timestamps))

    def close(self) -> None:
        self._right.close()


class ForeignTableJoinOperator(Operator):
    """Sends a changed right row to all left rows that refer to it."""

    def __init__(self, store: str, serdes: ForeignKeySerdes, *, versioned: bool) -> None:
        self._store = store
        self._serdes = serdes
        self._versioned = versioned
        self._resolved: ResolvedSerdes
        self._table: SubscriptionTable

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._resolved = self._serdes.resolved(context)
        self._table = context.store(self._store)

    def process(self, batch: Batch, output: Output) -> None:
        batch = with_keys(batch, self.context)
        if self._versioned:
            batch = latest_changes(batch, self.context)
        counts: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        for index, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            try:
                prefix = subscription_prefix(self._resolved.foreign_key_bytes(key) or b"")
                found = self._table.scan(prefix)
            except Exception as error:
                self.context.failed(batch, index, error)
                found = []
            counts.append(len(found))
            for stored_key, data in found:
                subscription = decode_subscription("", data)
                keys.append(stored_key[len(prefix) :])
                values.append(
                    ForeignKeyResponse(subscription.value_hash, value, subscription.partition)
                )
        if keys:
            output.emit(batch.expand(counts, keys, values))


class ResponseResolverOperator(Operator):
    """Joins left rows with responses.

    A row that has changed since its subscription is not joined.
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
        self._resolved: ResolvedSerdes
        self._left: ValueGetter

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._resolved = self._serdes.resolved(context)
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
                if self._resolved.hash_of(value) != response.value_hash:
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
            self.context.dropped(outdated, "the left row has changed since the subscription")
        if kept:
            done = batch if len(kept) == len(batch) else batch.take(kept)
            output.emit(done.with_values(results))

    def close(self) -> None:
        self._left.close()
