"""The tiers of `make test` and `make test-extended`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def extended_except(first_tier: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test, of which only some belong to the first tier."""
    kept = list(first_tier)
    return [
        pytest.param(value, marks=[pytest.mark.extended] * (value not in kept)) for value in values
    ]
