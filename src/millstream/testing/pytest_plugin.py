"""The pytest plugin: fixtures for tests of stream processing applications.

Installed with the package; pytest finds it by itself. Nothing is imported or started before a test
asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from millstream.config import StreamsConfig
    from millstream.embedded.broker import EmbeddedKafka
    from millstream.testing.driver import TopologyTestDriver
    from millstream.topology.physical.topology import Topology


class TopologyDrivers(Protocol):
    """What the fixture `topology_driver` gives: it makes test drivers, as their class does."""

    def __call__(
        self,
        topology: Topology,
        config: StreamsConfig | None = None,
        *,
        initial_wall_clock_ms: int | None = None,
    ) -> TopologyTestDriver:
        """A test driver, which is closed when the test ends."""
        ...


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """A started `EmbeddedKafka`, shared by the whole session.

    Topics stay until the end of the session: give each test topics and group ids of its own.
    A test that kills or suspends the broker needs a broker of its own, too.
    """
    from millstream.embedded.broker import EmbeddedKafka

    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture
def topology_driver() -> Iterator[TopologyDrivers]:
    """Makes a `TopologyTestDriver` of a topology, and closes it at the end of the test.

    Takes what the class takes, and may be called more than once in a test.

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
