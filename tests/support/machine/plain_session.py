"""The plain Spark session of a test process, which the modules that use it share."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession


class PlainSession:
    """A `local[8]` session: no retries by Spark, workers are reused for other tasks.

    It is created for the first test that uses it, and stopped before the first test of a module
    that does not, because a process has only one session and other modules create their own.
    """

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._modules: set[Path] = set()

    def sort(self, tests: list[pytest.Item]) -> None:
        """Move the modules with the `spark` fixture to the start, so that they are consecutive.

        Other tests that start processes follow, because short tests at the end keep all of pytest's
        workers busy.
        """
        self._modules = {
            each.path for each in tests if "spark" in getattr(each, "fixturenames", ())
        }
        tests.sort(
            key=lambda each: (each.path not in self._modules, "integration" not in each.path.parts)
        )

    def get(self) -> SparkSession:
        """Return the session, which is created if there is none or if a test has stopped it."""
        self._session = (
            SparkSession.builder.master("local[8]")
            .appName("millstream-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .getOrCreate()
        )
        self._session.sparkContext.setLogLevel("ERROR")
        return self._session

    def stop_before(self, test: pytest.Item | None) -> None:
        """Stop the session unless the next test belongs to a module that uses it."""
        if self._session is None or (test is not None and test.path in self._modules):
            return
        self._session.stop()
        self._session = None
