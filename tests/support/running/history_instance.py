"""An application that reads a table of the lake before a topic, as a script that kills itself with
its JVM where it is told.

    history_instance.py BOOTSTRAP APPLICATION TABLE TOPIC STATE PLACE

PLACE is one of `PLACES`. Each user's pages are put together in the order in which they are read,
and written to the topic `<APPLICATION>-out`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from millstream import KafkaStreams, KStream, Materialized, StreamsBuilder, StreamsConfig, Topology
from millstream.application import histories
from millstream.kafka.data.transactions import TransactionalRecordProducer
from millstream.serdes import STRING
from millstream.structured.lake import history_rows
from millstream.structured.lake.history import HistoryWriter
from millstream.structured.sending import Batch, SendOnce, Target

WRITTEN: Final = "while a step of the history is written"
READ: Final = "while the history is read"
PLACES: Final = (WRITTEN, READ)
#: So that there are some steps, of which this one is not the first.
CHUNK: Final = 10
_STEP: Final = 2
_RECORDS: Final = 25
NAME: Final = "clicks"


def topology(table: str, topic: str, out: str, passing: Callable[[str], str] = str) -> Topology:
    """Table and topic, in this order."""
    builder = StreamsBuilder()
    clicks = builder.stream_from_lake(
        table, format="parquet", key=STRING, value=STRING, then=topic, name=NAME
    )
    put_together(clicks, out, passing)
    return builder.build()


def put_together(clicks: KStream[str, str], out: str, passing: Callable[[str], str] = str) -> None:
    """The pages of each user, in the order in which they come."""
    pages = (
        clicks.map_values(passing)
        .group_by_key()
        .aggregate(
            str,
            lambda _, page, pages: f"{pages} {page}",
            store=Materialized("pages", value=STRING),
        )
    )
    pages.to_stream().to(out, key=STRING, value=STRING)


def config(bootstrap: str, application: str, state: str) -> StreamsConfig:
    """Exactly once: what is read twice or left out is seen in the pages."""
    return StreamsConfig(
        application_id=application,
        bootstrap_servers=bootstrap,
        state_dir=state,
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=100,
        consumer={"max.poll.records": 10},
    )


def die(group: int) -> None:
    """As if the machine had failed: driver, JVM, and the worker that notices this."""
    os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class DyingSendOnce(SendOnce):
    """Kills all before a step's first transaction is committed, all of its records being there.

    Args:
        target: where rows go.
        batch: the step.
    """

    def __init__(self, target: Target, batch: Batch) -> None:
        super().__init__(target, batch)
        self._group = os.getpgrp() if batch.number == _STEP else 0

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        if self._group:
            last = partial(_die_before_commit, self._group)
            patch.object(TransactionalRecordProducer, "commit_transaction", last).start()
        yield from super().run(batches)


def _die_before_commit(group: int, *_: object) -> None:
    die(group)


class DyingReader:
    """A function of the user's that kills all at one of the records."""

    def __init__(self) -> None:
        self._group = os.getpgrp()
        self._left = _RECORDS

    def __call__(self, value: str) -> str:
        self._left -= 1
        if not self._left:
            die(self._group)
        return value


def main() -> None:
    bootstrap, application, table, topic, state, place = sys.argv[1:]
    passing: Callable[[str], str] = DyingReader() if place == READ else str
    if place == WRITTEN:
        patch.object(history_rows, "SendOnce", DyingSendOnce).start()
    patch.object(histories, "HistoryWriter", partial(HistoryWriter, chunk=CHUNK)).start()
    built = topology(table, topic, f"{application}-out", passing)
    with KafkaStreams(built, config(bootstrap, application, state)) as streams:
        streams.wait_for_state("NOT_RUNNING", timedelta(minutes=5))


if __name__ == "__main__":
    main()
