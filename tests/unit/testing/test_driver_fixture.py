"""The fixture `topology_driver` of the pytest plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream import IllegalStateError, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver


@pytest.fixture
def drivers_to_check() -> Iterator[list[TopologyTestDriver]]:
    """Check after the teardown of later fixtures that all drivers are closed."""
    drivers: list[TopologyTestDriver] = []
    yield drivers
    assert len(drivers) == 2
    for driver in drivers:
        with pytest.raises(IllegalStateError, match="closed"):
            driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "v")


def test_fixture_creates_and_closes_drivers(
    drivers_to_check: list[TopologyTestDriver], topology_driver: Any
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to("out", key=STRING, value=STRING)
    topology = builder.build()
    config = StreamsConfig(application_id="mine", bootstrap_servers="not-used:9092")
    drivers = [
        topology_driver(topology),
        topology_driver(topology, config, initial_wall_clock_ms=5),
    ]
    for driver in drivers:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "v")
    out = drivers[1].create_output_topic("out", key=STRING, value=STRING)
    assert out.read_record().timestamp == 5
    drivers_to_check += drivers
