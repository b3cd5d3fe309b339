"""Goal: a store read as a DataFrame is what the store itself shows at the same position.

Method: one application with a store of every kind, whose records come out of order, too late, and
with deletions; when nothing moves any more, each store is compared with its DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.running import every_store
from support.running.applications import Application

from millstream import KafkaStreams
from millstream.testing import EmbeddedKafka

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def running(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Application, KafkaStreams]]:
    """The application, with all of its input processed and committed."""
    application = Application(kafka, every_store.topology, every_store.INPUTS, {})
    application.places.write(every_store.records(application.name, seed=5))
    folder = tmp_path_factory.mktemp("every-store")
    with application.running(spark, folder, topology_optimization="all") as (streams, _):
        application.wait_until_done()
        yield application, streams


def ms(time: datetime | None) -> int | None:
    """A time of a column, in milliseconds."""
    if time is None:
        return None
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)


def rows_of(frame: DataFrame) -> list[Any]:
    return frame.collect()


def key_values(frame: DataFrame, *, timed: bool) -> list[tuple[Any, ...]]:
    """The rows as `every_store.shown` has them."""
    return sorted(
        (
            (row.key, value_of(row.value), ms(row.timestamp) if timed else None)
            for row in rows_of(frame)
        ),
        key=repr,
    )


def value_of(value: Any) -> Any:
    """A struct of the columns as the object that it was."""
    return msgspec.convert(value.asDict(), every_store.Seen) if hasattr(value, "asDict") else value


def windows(frame: DataFrame, *, timed: bool) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (
                (row.key, ms(row.window_start), ms(row.window_end)),
                row.value,
                ms(row.timestamp) if timed else None,
            )
            for row in rows_of(frame)
        ),
        key=repr,
    )


@pytest.mark.parametrize("store", every_store.KEY_VALUE)
def test_key_value_stores(running: tuple[Application, KafkaStreams], store: str) -> None:
    """On disk, in memory, of a number of keys, restored from the input, global."""
    _, streams = running
    timed = store not in ("plain", "recent")
    shown = every_store.shown(streams, store)
    assert shown
    assert key_values(streams.dataframe(store), timed=timed) == shown
