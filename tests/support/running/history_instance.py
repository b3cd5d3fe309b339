"""An application that reads a lake table before a topic, as a script that kills itself with
its JVM at a given place.

    history_instance.py BOOTSTRAP APPLICATION TABLE TOPIC STATE PLACE

PLACE is one of `PLACES`. Each user's pages are concatenated in the order in which they are read
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
from millstream.application import dataframes
from millstream.dataframes.kafka_writer import ExactlyOnceWriter, OutputTopic, QueryBatch
from millstream.dataframes.lake import history_rows
from millstream.dataframes.lake.history_writer import HistoryWriter
from millstream.kafka.clients.transactional_producer import TransactionalRecordProducer
from millstream.serdes import STRING

WRITTEN: Final = "while a step of the history is written"
READ: Final = "while the history is read"
PLACES: Final = (WRITTEN, READ)
#: Small enough for several steps; the application is killed in step 2.
CHUNK: Final = 10
_STEP: Final = 2
_RECORDS: Final = 25
NAME: Final = "clicks"


def topology(table: str, topic: str, out: str, mapper: Callable[[str], str] = str) -> Topology:
    """The table, then the topic."""
    builder = StreamsBuilder()
    clicks = builder.stream_from_lake(
        table, format="parquet", key=STRING, value=STRING, then=topic, name=NAME
    )
    concatenate_pages(clicks, out, mapper)
    return builder.build()


def concatenate_pages(
    clicks: KStream[str, str], out: str, mapper: Callable[[str], str] = str
) -> None:
    """Concatenate the pages of each user in order."""
    pages = (
        clicks.map_values(mapper)
        .group_by_key()
        .aggregate(
            str,
            lambda _, page, pages: f"{pages} {page}",
            store=Materialized("pages", value=STRING),
        )
    )
    pages.to_stream().to(out, key=STRING, value=STRING)


def config(bootstrap: str, application: str, state: str) -> StreamsConfig:
    """Exactly-once: the pages show duplicate and missing records."""
    return StreamsConfig(
        application_id=application,
        bootstrap_servers=bootstrap,
        state_dir=state,
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=100,
        consumer={"max.poll.records": 10},
    )


def die(group: int) -> None:
    """Simulate a machine failure: kill the driver, the JVM, and the worker that would notice."""
    os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(ExactlyOnceWriter):
    """Kills everything before a step's first transaction is committed, after all its records are
    sent.
    """

    def __init__(self, target: OutputTopic, batch: QueryBatch) -> None:
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
    """A user function that kills everything at one of the records."""

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
    mapper: Callable[[str], str] = DyingReader() if place == READ else str
    if place == WRITTEN:
        patch.object(history_rows, "ExactlyOnceWriter", DyingWriter).start()
    patch.object(dataframes, "HistoryWriter", partial(HistoryWriter, chunk=CHUNK)).start()
    built = topology(table, topic, f"{application}-out", mapper)
    with KafkaStreams(built, config(bootstrap, application, state)) as streams:
        streams.wait_for_state("NOT_RUNNING", timedelta(minutes=5))


if __name__ == "__main__":
    main()
