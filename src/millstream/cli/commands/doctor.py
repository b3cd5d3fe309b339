"""`millstream doctor`: check the requirements on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, NamedTuple

import click

from millstream.cli.output import print_json
from millstream.embedded.jars import (
    KAFKA_VERSION,
    cache_folder,
    damaged_jars,
    expected_sums,
    ivy_jar,
)
from millstream.embedded.java import java_of_spark
from millstream.errors import ConfigError, EmbeddedKafkaError
from millstream.kafka.kafka_python_compat import check_kafka_python
from millstream.kafka.speedups import missing_advice
from millstream.native import EXTENSION_VERSION

_PYTHON = (3, 11)
_PACKAGES = (
    "pyspark",
    "pyarrow",
    "confluent-kafka",
    "rocksdict",
    "orjson",
    "msgspec",
    "cloudpickle",
)

#: The packages of the extra `spark`.
_SPARK_PACKAGES = frozenset({"pyspark", "pyarrow"})

Status = Literal["ok", "warning", "missing"]


class Finding(NamedTuple):
    #: A warning does not prevent applications from running.
    status: Status
    line: str


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Check the requirements on this machine.

    The exit code is 1 if something is missing. Warnings do not change it.
    """
    results = list(findings())
    if as_json:
        print_json(
            [
                {"ok": status != "missing", "status": status, "finding": line}
                for status, line in results
            ]
        )
    else:
        for status, line in results:
            click.echo(f"{status if status == 'ok' else status.upper():8}{line}")
    return 1 if any(status == "missing" for status, _ in results) else 0


def findings() -> Iterator[Finding]:
    """Check Python, Java, packages, the C extension and jars, in this order."""
    yield _python()
    yield _checked(_java)
    for package in _PACKAGES:
        yield _package(package)
    yield _kafka_python()
    yield _extension()
    yield _checked(_jars)


def _python() -> Finding:
    found = ".".join(str(number) for number in sys.version_info[:3])
    required = ".".join(str(number) for number in _PYTHON)
    if sys.version_info < _PYTHON:
        return Finding("missing", f"Python {found} is too old: install Python {required} or later.")
    return Finding("ok", f"Python {found}")


def _checked(check: Callable[[], str]) -> Finding:
    try:
        return Finding("ok", check())
    except EmbeddedKafkaError as error:
        return Finding("missing", str(error))


def _java() -> str:
    java = java_of_spark()
    return f"Java {java.version} ({java.path})"


def _package(name: str) -> Finding:
    try:
        return Finding("ok", f"{name} {version(name)}")
    except PackageNotFoundError:
        requirement = "'millstream[spark]'" if name in _SPARK_PACKAGES else name
        return Finding("missing", f"{name} is not installed: pip install {requirement}")


def _kafka_python() -> Finding:
    """Check kafka-python including the internals that Millstream uses."""
    try:
        check_kafka_python()
    except ConfigError as error:
        return Finding("missing", str(error))
    return _package("kafka-python")


def _extension() -> Finding:
    """Check the C extension, which is optional."""
    warning = missing_advice(None)
    if warning is not None:
        return Finding("warning", warning)
    return Finding("ok", f"C extension {EXTENSION_VERSION}: records are read and written in C")


def _jars() -> str:
    sums = expected_sums()
    folder = cache_folder()
    if not damaged_jars(folder, sums):
        return f"Apache Kafka {KAFKA_VERSION}'s broker ({len(sums)} jars in {folder})"
    ivy_jar()
    return f"Apache Kafka {KAFKA_VERSION}'s broker will be downloaded to {folder} when needed"
