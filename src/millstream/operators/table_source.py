"""Where a table begins: records become changes (Kafka Streams' `KTableSource`)."""

from __future__ import annotations

from millstream.operators.batch import Batch
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.table_store import TableWriter


class TableSource(Operator):
    """Takes each record for the new value of its key. One without a key is dropped.

    Args:
        store: the name of the store that keeps the table; None if nobody needs one.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(self, store: str | None, *, send_old_values: bool = False) -> None:
        self._store = store
        self._send_old_values = send_old_values
        self._writer: TableWriter | None = None

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        if self._store is not None:
            self._writer = TableWriter(context, self._store, send_old_values=self._send_old_values)

    def process(self, batch: Batch, output: Output) -> None:
        keys = batch.keys
        if None in keys:
            keep = [key is not None for key in keys]
            self.context.dropped(len(keep) - sum(keep), "their key is null")
            batch = batch.select(keep)
            if not batch.keys:
                return
        if self._writer is not None:
            self._writer.write(batch, output)
        else:
            output.emit(batch)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()
