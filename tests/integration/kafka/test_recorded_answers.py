"""A real broker still returns the recorded answers with which the simulated cluster is compared."""

from __future__ import annotations

import pytest
from simulation.probes.probing import probe, real, recorded

from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.extended


def test_a_real_broker_answers_as_recorded(kafka: EmbeddedKafka) -> None:
    """Send the same requests again; `python -m simulation.probes.probing` records the answers."""
    with real(kafka.bootstrap_servers) as world:
        assert probe(world) == recorded()
