"""The recorded answers of Kafka Streams to queries are reproducible, on a broker of this test."""

from __future__ import annotations

import pytest
from conformance.oracle.process import OracleUnavailable
from conformance.queries.recording import RECORDED, record_answers, to_jsonl
from conformance.queries.scenarios import scenarios

from millstream.testing import EmbeddedKafka


@pytest.mark.slow
def test_the_recording_is_reproducible() -> None:
    """Goal: our answers are compared with those of Kafka Streams, line by line."""
    with EmbeddedKafka() as kafka:
        try:
            recorded_again = to_jsonl(record_answers(scenarios(), kafka.bootstrap_servers))
        except OracleUnavailable as why:
            pytest.skip(str(why))
    assert recorded_again == RECORDED.read_text(encoding="utf-8")
