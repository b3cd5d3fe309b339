"""Random scenarios give what the real Kafka Streams gives: a minute of what `make fuzz` does.

The same scenarios at each run, so that one which differs tells of a change of ours. `make fuzz`
takes new ones each time; the seed that it names repeats them here.
"""

from __future__ import annotations

import json
import os

import pytest
from conformance.fuzz import fuzz
from conformance.oracle import process

_SEED = os.environ.get("MILLSTREAM_FUZZ_SEED", "smoke")
_SECONDS = float(os.environ.get("MILLSTREAM_FUZZ_SECONDS", "60"))
_UNAVAILABLE = process.missing()


@pytest.mark.skipif(_UNAVAILABLE is not None, reason=_UNAVAILABLE or "")
def test_agrees_on_what_nobody_thought_of() -> None:
    """Hunts whatever the recorded scenarios do not cover."""
    found = fuzz(_SEED, seconds=_SECONDS)
    assert found.count.total() > 0
    shown = [json.dumps(differing, ensure_ascii=False) for differing in found.differing[:3]]
    assert found.differing == [], "\n".join([f"seed {_SEED}", *shown])
