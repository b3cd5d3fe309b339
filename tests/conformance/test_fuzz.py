"""Random scenarios have the same results in Kafka Streams; a small part of `make fuzz`.

Every run uses the same scenarios, so that a difference is caused by a change of the code.
`make fuzz` uses a new seed each time and prints it; set the variables below to repeat its run here.
"""

from __future__ import annotations

import json
import os

import pytest
from conformance.fuzz import fuzz
from conformance.oracle.process import OracleUnavailable

_SEED = os.environ.get("MILLSTREAM_FUZZ_SEED", "smoke")
_SECONDS = float(os.environ.get("MILLSTREAM_FUZZ_SECONDS", "25"))
#: The minimum number of scenarios per second: a tenth of the rate of one processor core of 2020.
_MIN_RATE = 1
#: The maximum share of scenarios that Kafka Streams rejects, which compare nothing.
_MAX_SKIPPED_SHARE = 0.2


@pytest.mark.extended
def test_random_scenarios_agree_with_kafka_streams() -> None:
    """Covers combinations that the recorded scenarios do not contain.

    Like `make fuzz`, the first run downloads the jars of Kafka Streams.
    """
    try:
        found = fuzz(_SEED, seconds=_SECONDS)
    except OracleUnavailable as why:
        pytest.skip(str(why))
    compared = found.count.total()
    assert compared >= _MIN_RATE * _SECONDS
    assert found.left_out <= _MAX_SKIPPED_SHARE * (compared + found.left_out)
    shown = [json.dumps(differing, ensure_ascii=False) for differing in found.differing[:3]]
    assert found.differing == [], "\n".join([f"seed {_SEED}", *shown])
