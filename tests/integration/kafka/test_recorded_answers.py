"""What a real broker answered, as the simulated cluster is compared with, still holds."""

from __future__ import annotations

from simulation.probing import probe, real, recorded

from millstream.testing import EmbeddedKafka


def test_a_real_broker_answers_as_recorded(kafka: EmbeddedKafka) -> None:
    """Asks the same questions again; `python -m simulation.probing` writes the answers down."""
    with real(kafka.bootstrap_servers) as world:
        assert probe(world) == recorded()
