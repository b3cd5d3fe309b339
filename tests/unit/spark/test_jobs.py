"""The meaning of failed Spark jobs, derived from Spark's messages."""

from __future__ import annotations

import pytest

from millstream.errors import EnvironmentMismatchError, SparkError
from millstream.spark.jobs import _to_spark_error

ABORTED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 "
    "failed 1 times, most recent failure: Lost task 0.0 in stage 2.0 (TID 2) (127.0.0.1 executor "
    "driver): {what}\n\tat org.apache.spark.errors.SparkCoreErrors$.x(SparkCoreErrors.scala:1)\n"
    "Caused by: java.io.EOFException\n\t... 30 more"
)


def translated(what: str) -> SparkError:
    return _to_spark_error(Exception(ABORTED.format(what=what)))


def test_another_python_in_the_worker() -> None:
    """Goal: PySpark's own check of the Python version yields our error, with both versions."""
    error = translated(
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
        "worker has different version: 3.10 than that in driver: 3.11, PySpark cannot run with "
        "different minor versions."
    )
    assert isinstance(error, EnvironmentMismatchError)
    assert error.differences == (("python", "3.11", "3.10"),)


def test_a_package_that_the_worker_lacks() -> None:
    """Goal: the missing package is named."""
    error = translated("ModuleNotFoundError: No module named 'millstream'")
    assert isinstance(error, EnvironmentMismatchError)
    assert "millstream" in str(error)


@pytest.mark.parametrize(
    "what",
    ["org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "x" * 1000],
)
def test_other_failures_are_one_short_line(what: str) -> None:
    """Goal: the reason of a restart is readable, without a JVM stack trace."""
    error = translated(what)
    assert type(error) is SparkError
    assert what[:200] in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 500


def test_an_exception_in_the_worker_is_the_reason() -> None:
    """Goal: the reason is the Python exception itself, without the path that it took."""
    error = translated(
        "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown "
        "from the Python worker: Traceback (most recent call last):\n"
        '  File "/a/worker.py", line 3, in main\n    process()\n    ^^^^^^^^^\n'
        '  File "/a/rocksdict/__init__.py", line 1, in <module>\n    from .rocksdict import *\n'
        "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.30' not found\n SQLSTATE: 38000\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:6)"
    )
    assert str(error).endswith(
        "raised ImportError: libstdc++.so.6: version `GLIBCXX_3.4.30' not found"
    )


def test_an_error_without_a_jvm_has_a_reason() -> None:
    """Detects an error of a thread that was closed in an orderly way: a machine that shut down
    had ended the JVM, which held the text of the job's error."""

    class OfTheJvmError(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    assert "the JVM has ended, so the reason is not available" in str(
        _to_spark_error(OfTheJvmError())
    )
