"""A pytest plugin for slow interpreters: examples of properties have no time limit.

The tests of the extension run without `tests/conftest.py`, which needs Spark.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def pytest_configure() -> None:
    settings.register_profile(
        "slow", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50
    )
    settings.load_profile("slow")
