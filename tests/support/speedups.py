"""The C extension, for tests that are about it."""

from __future__ import annotations

import pytest

from millstream.kafka.speedups import Speedups, chosen_speedups, told_speedups
from support.strictness import ABSENT


def needed_speedups() -> Speedups:
    """The extension; skips the test where there is none."""
    found = chosen_speedups(None)
    if found is None:
        pytest.skip(f"{ABSENT}: records go {told_speedups(None)}")
    return found
