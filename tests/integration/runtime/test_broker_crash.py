"""An application whose only broker crashes under load, and returns with its data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.machine.leftovers import nothing_left
from support.running.topologies.identified import Identified
from support.running.word_count import RUNNING
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka


@pytest.fixture
def own() -> Iterator[EmbeddedKafka]:
    """A broker that a test may kill."""
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.mark.extended
def test_the_application_survives_a_crash_of_the_broker(
    own: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the same threads continue, and no record is lost.

    Method: the broker's process is killed while records travel through both sub-topologies, and
    restarted on its port and data.
    """
    app = Identified(own, tmp_path, partitions=2)
    with nothing_left():
        streams = app.streams(spark)
        streams.start()
        try:
            streams.wait_for_state("RUNNING", RUNNING)
            app.write(5_000)
            wait_for(app.has_output, 60, "there is some output")
            with app.fault():
                app.write(5_000)
                own.kill()
                own.start()
                app.write(1_000)
            app.check(120)
            assert streams.error is None
            names = {thread.thread_name for thread in streams.metadata_for_local_threads()}
            assert len(names) == 2
        finally:
            assert streams.close(timedelta(seconds=60))
