"""Bad input that only Kafka itself rejects or accepts: each kind has the outcome of its page."""

from __future__ import annotations

import pytest
from bad_inputs.case import Case, differences
from bad_inputs.on_kafka import FAMILY

from millstream.testing import EmbeddedKafka


@pytest.mark.parametrize("case", FAMILY.cases, ids=lambda case: case.id)
def test_the_outcome(kafka: EmbeddedKafka, case: Case) -> None:
    """The error and its message; or the output, and the dropped records."""
    assert not differences(case, kafka)
