"""Random scenarios, new ones at each run, give what the real Kafka Streams gives.

A minute of what `make fuzz` does; the seed that a failure names repeats it.
"""

from __future__ import annotations

import json
import os

import pytest
from conformance.fuzz import fuzz
from conformance.oracle import process

_SECONDS = float(os.environ.get("MILLSTREAM_FUZZ_SECONDS", "60"))
_UNAVAILABLE = process.missing()


@pytest.mark.skipif(_UNAVAILABLE is not None, reason=_UNAVAILABLE or "")
def test_agrees_on_what_nobody_thought_of() -> None:
    """Hunts whatever the recorded scenarios do not cover."""
    seed = os.urandom(4).hex()
    found = fuzz(seed, seconds=_SECONDS)
    assert found.count.total() > 0
    shown = [json.dumps(differing, ensure_ascii=False) for differing in found.differing[:3]]
    assert found.differing == [], "\n".join([f"seed {seed}", *shown])
