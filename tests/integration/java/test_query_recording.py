"""What Kafka Streams answered to queries is what it would answer today, on a broker of its own."""

from __future__ import annotations

import pytest
from conformance.oracle.process import OracleUnavailable
from conformance.queries.recording import RECORDED, answered, written
from conformance.queries.scenarios import scenarios

from millstream.testing import EmbeddedKafka


@pytest.mark.slow
def test_the_recording_can_be_made_again() -> None:
    """Goal: what we compare our answers with is Kafka Streams', line by line."""
    with EmbeddedKafka() as kafka:
        try:
            again = written(answered(scenarios(), kafka.bootstrap_servers))
        except OracleUnavailable as why:
            pytest.skip(str(why))
    assert again == RECORDED.read_text(encoding="utf-8")
