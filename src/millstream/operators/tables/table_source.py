"""Where a table begins: records become changes (Kafka Streams' `KTableSource`)."""

from __future__ import annotations

from millstream.operators.batch import Batch
from millstream.operators.operator import Output
from millstream.operators.tables.table_store import TableOperator
from millstream.operators.usable import with_keys


class TableSourceOperator(TableOperator):
    """Takes each record for the new value of its key. One without a key is dropped.

    Args:
        store: the name of the store that keeps the table; None if nobody needs one.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(self, store: str | None, *, send_old_values: bool = False) -> None:
        super().__init__(store, send_old_values=send_old_values)

    @property
    def only_fills_cache(self) -> bool:
        return self._writer is not None and self._writer.is_cached

    def process(self, batch: Batch, output: Output) -> None:
        batch = with_keys(batch, self.context)
        if batch.keys:
            self.hand_on(batch, output)
