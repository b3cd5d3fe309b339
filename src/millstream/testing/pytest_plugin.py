"""The pytest plugin: fixtures for tests of stream processing applications.

The plugin is installed with the package, and pytest discovers it automatically. No broker or driver
is started until a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from millstream.config.streams_config import StreamsConfig
    from millstream.embedded.embedded_kafka import EmbeddedKafka
    from millstream.testing.driver import TopologyTestDriver
    from millstream.topology.physical.topology import Topology


class TopologyDrivers(Protocol):
    """The type of the fixture `topology_driver`.

    The fixture is a factory of `TopologyTestDriver` objects.
    """

    def __call__(
        self,
        topology: Topology,
        config: StreamsConfig | None = None,
        *,
        initial_wall_clock_ms: int | None = None,
    ) -> TopologyTestDriver:
        """Create a test driver, which is closed at the end of the test."""


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """A running `EmbeddedKafka`, shared by the whole session.

    Topics exist until the end of the session: use separate topics and group ids for each test. A
    test that kills or suspends the broker needs a separate `EmbeddedKafka`.
    """
    from millstream.embedded.embedded_kafka import EmbeddedKafka

    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture
def topology_driver() -> Iterator[TopologyDrivers]:
    """A factory of `TopologyTestDriver` objects.

    The objects are closed at the end of the test. The factory takes the arguments of the class
    and can be called more than once.

    Example:
        def test_shouting(topology_driver):
            driver = topology_driver(shouting())
            driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "hi")
            out = driver.create_output_topic("out", key=STRING, value=STRING)
            assert out.read_value() == "HI"
    """
    from millstream.testing.driver import TopologyTestDriver

    with ExitStack() as drivers:

        def make(
            topology: Topology,
            config: StreamsConfig | None = None,
            *,
            initial_wall_clock_ms: int | None = None,
        ) -> TopologyTestDriver:
            return drivers.enter_context(
                TopologyTestDriver(topology, config, initial_wall_clock_ms=initial_wall_clock_ms)
            )

        yield make
