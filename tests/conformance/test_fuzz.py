"""Random scenarios give what the real Kafka Streams gives: some of what `make fuzz` does.

The same scenarios at each run, so that one which differs tells of a change of ours. `make fuzz`
takes new ones each time; the seed that it names repeats them here.
"""

from __future__ import annotations

import json
import os

import pytest
from conformance.fuzz import fuzz
from conformance.oracle.process import OracleUnavailable

_SEED = os.environ.get("MILLSTREAM_FUZZ_SEED", "smoke")
_SECONDS = float(os.environ.get("MILLSTREAM_FUZZ_SECONDS", "25"))
#: A tenth of what one core of 2020 compares in a second.
_LEAST_RATE = 1
#: Of scenarios that Kafka Streams refuses or fails on: they compare nothing.
_MOST_LEFT_OUT = 0.2


def test_agrees_on_what_nobody_thought_of() -> None:
    """Hunts whatever the recorded scenarios do not cover.

    The first time it fetches the jars of Kafka Streams, as `make fuzz` does.
    """
    try:
        found = fuzz(_SEED, seconds=_SECONDS)
    except OracleUnavailable as why:
        pytest.skip(str(why))
    compared = found.count.total()
    assert compared >= _LEAST_RATE * _SECONDS
    assert found.left_out <= _MOST_LEFT_OUT * (compared + found.left_out)
    shown = [json.dumps(differing, ensure_ascii=False) for differing in found.differing[:3]]
    assert found.differing == [], "\n".join([f"seed {_SEED}", *shown])
