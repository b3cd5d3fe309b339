"""`millstream doctor`: check the requirements on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

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

_PYTHON = (3, 11)
_PACKAGES = ("pyspark", "confluent-kafka", "rocksdict", "orjson", "msgspec", "cloudpickle")

#: A finding: whether the requirement is met, and a line of text.
Finding = tuple[bool, str]


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Check the requirements on this machine.

    The exit code is 1 if something is missing.
    """
    results = list(findings())
    if as_json:
        print_json([{"ok": is_ok, "finding": line} for is_ok, line in results])
    else:
        for is_ok, line in results:
            click.echo(f"{'ok      ' if is_ok else 'MISSING '}{line}")
    return 0 if all(is_ok for is_ok, _ in results) else 1


def findings() -> Iterator[Finding]:
    """Check Python, Java, the packages and the broker's jars, in this order."""
    yield _python()
    yield _checked(_java)
    for package in _PACKAGES:
        yield _package(package)
    yield _kafka_python()
    yield _checked(_jars)


def _python() -> Finding:
    found = ".".join(str(number) for number in sys.version_info[:3])
    required = ".".join(str(number) for number in _PYTHON)
    if sys.version_info < _PYTHON:
        return False, f"Python {found} is too old: install Python {required} or later."
    return True, f"Python {found}"


def _checked(check: Callable[[], str]) -> Finding:
    try:
        return True, check()
    except EmbeddedKafkaError as error:
        return False, str(error)


def _java() -> str:
    java = java_of_spark()
    return f"Java {java.version} ({java.path})"


def _package(name: str) -> Finding:
    try:
        return True, f"{name} {version(name)}"
    except PackageNotFoundError:
        requirement = "'millstream[spark]'" if name == "pyspark" else name
        return False, f"{name} is not installed: pip install {requirement}"


def _kafka_python() -> Finding:
    """Check kafka-python including the internals that Millstream uses."""
    try:
        check_kafka_python()
    except ConfigError as error:
        return False, str(error)
    return _package("kafka-python")


def _jars() -> str:
    sums = expected_sums()
    folder = cache_folder()
    if not damaged_jars(folder, sums):
        return f"Apache Kafka {KAFKA_VERSION}'s broker ({len(sums)} jars in {folder})"
    ivy_jar()
    return f"Apache Kafka {KAFKA_VERSION}'s broker will be downloaded to {folder} when needed"
