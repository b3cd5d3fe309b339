"""Foreign-key join, first step: left rows subscribe to the right rows that they refer to.

    left table ──► SubscriptionSend ──(subscriptions)──► SubscriptionReceive ──► SubscriptionJoin ─┐
                                                              │ store                              │
                                       right table ──► ForeignTableJoin ───────────────────────────┤
    result ◄── ResponseResolver ◄──────────────(responses)─────────────────────────────────────────┘

The topic in between takes a subscription to the task that owns the right row, because the two
tables are partitioned by different keys (KIP-213).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import ConfigError
from millstream.operators.batch import Batch
from millstream.operators.joins.foreign_key_formats import Instruction, Subscription
from millstream.operators.joins.murmur3 import murmur3_128
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.usable import newest_changes
from millstream.serdes import Serde

#: What to tell the owner of which right row: foreign key, instruction.
Message = tuple[Any, int]

#: Objects of these types that are equal have equal bytes in every serde.
_PLAIN: Final = frozenset((str, bytes, int))

_DELETE_QUIETLY: Final = int(Instruction.DELETE_QUIETLY)
_DELETE_AND_RESPOND: Final = int(Instruction.DELETE_AND_RESPOND)
_RESPOND: Final = int(Instruction.RESPOND)
_RESPOND_IF_FOUND: Final = int(Instruction.RESPOND_IF_FOUND)


@dataclass(frozen=True)
class ForeignKeySerdes:
    """The serdes by which a foreign-key join compares and hashes, and the topics they are told.

    Args:
        subscription_topic: the undecorated name of the topic of subscriptions.
        primary_key: of the left table's keys; None for the config's default, as for the others.
        foreign_key: of the right table's keys.
        value: of the left table's values.
        declared_at: file and line of the user's program that joins.
    """

    subscription_topic: str
    primary_key: Serde[Any] | None
    foreign_key: Serde[Any] | None
    value: Serde[Any] | None
    declared_at: str = field(default="", compare=False)

    def opened(self, context: OperatorContext) -> OpenedSerdes:
        """The same in a task, with everything left open taken from the config.

        Raises:
            ConfigError: neither the table nor the config has a serde.
        """
        return OpenedSerdes(
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
                f"A foreign-key join does not know the {what} serde of its {side} table: give "
                f"{what}=... where the table is read, or Materialized({what}=...) where it is "
                f"made, or set default_{what}_serde.{where}",
                node=context.node,
            )
        return serde


class OpenedSerdes:
    """The serdes of a foreign-key join at work in a task.

    Serdes that name schemas after topics are told Kafka Streams' pseudo topics: what they serialize
    here is never a whole key or value of a real one.
    """

    def __init__(
        self, topic: str, primary_key: Serde[Any], foreign_key: Serde[Any], value: Serde[Any]
    ) -> None:
        self._primary_topic, self._primary_key = f"{topic}-pk", primary_key
        self._foreign_topic, self._foreign_key = f"{topic}-fk", foreign_key
        self._value_topic, self._value = f"{topic}-vh", value

    def primary_key_bytes(self, key: Any) -> bytes:
        """A left row's key, serialized."""
        return self._primary_key.serialize(self._primary_topic, key) or b""

    def foreign_key_bytes(self, key: Any) -> bytes | None:
        """A right row's key, serialized."""
        return self._foreign_key.serialize(self._foreign_topic, key)

    def hash_of(self, value: Any) -> bytes | None:
        """The hash of a left row's value; None for None."""
        data = self._value.serialize(self._value_topic, value)
        return None if data is None else murmur3_128(data)


class SubscriptionSendOperator(Operator):
    """Tells the owners of right rows which left rows refer to them, and which no longer do.

    Takes the changes of the left table with what they replace.

    Args:
        foreign_key: (key, value) → the key of the right row; None if there is none.
        serdes: compare and hash.
        left_join: whether left rows without a right row have a result.
        versioned: whether the left table is, and so may give changes that are not the newest.
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
        self._opened: OpenedSerdes

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._opened = self._serdes.opened(context)

    def process(self, batch: Batch, output: Output) -> None:
        if self._versioned:
            batch = newest_changes(batch, self.context)
        messages_of = self._left_messages if self._left_join else self._inner_messages
        # Follows Kafka Streams, except that the task's partition is taken for the record's: they
        # are the same, and a punctuator's record has none.
        partition = self.context.task_id.partition
        opened = self._opened
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
                    value_hash = opened.hash_of(new)
                    key_bytes = opened.primary_key_bytes(key)
            except Exception as error:
                self.context.failed(batch, index, error)
                messages = ()
            counts.append(len(messages))
            for foreign_key, instruction in messages:
                keys.append(foreign_key)
                values.append(Subscription(value_hash, instruction, key_bytes, partition))
        if keys:
            output.emit(batch.expand(counts, keys, values))

    def _inner_messages(self, key: Any, new: Any, old: Any) -> tuple[Message, ...]:
        before = None if old is None else self._foreign_key(key, old)
        if new is None:
            return () if before is None else ((before, _DELETE_AND_RESPOND),)
        after = self._foreign_key(key, new)
        if after is None:
            self.context.dropped(1, "their foreign key is null")
            return () if before is None else ((before, _DELETE_AND_RESPOND),)
        if before is None or not self._differ(after, before):
            return ((after, _RESPOND_IF_FOUND),)
        return ((before, _DELETE_QUIETLY), (after, _RESPOND))

    def _left_messages(self, key: Any, new: Any, old: Any) -> tuple[Message, ...]:
        if old is None and new is None:
            return ()
        before = None if old is None else self._foreign_key(key, old)
        after = None if new is None else self._foreign_key(key, new)
        if before is not None and self._differ(after, before):
            # The subscription to the new right row goes to another task, which knows nothing of it.
            return ((before, _DELETE_QUIETLY), (after, _RESPOND))
        return ((after, _RESPOND),)

    def _differ(self, after: Any, before: Any) -> bool:
        kind = type(after)
        if kind in _PLAIN and kind is type(before) and after == before:
            return False
        to_bytes = self._opened.foreign_key_bytes
        return to_bytes(after) != to_bytes(before)
