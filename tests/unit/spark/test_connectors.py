"""Jars of connectors: which, for which Spark, and what is said when they cannot be had.

A small program stands in for Java and its Ivy, as in the tests of the broker's jars.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import SparkError
from millstream.spark.sessions.connectors import (
    CONNECTORS,
    coordinates,
    resolve,
    session_settings,
    spark_version,
)


@pytest.fixture
def maven(tmp_path: Path) -> dict[str, str]:
    """An environment whose Java delivers what ivy.xml asks for: jars with nothing in them."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
        if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit; fi
        echo call >> {tmp_path}/calls
        while [ "$1" != -ivy ]; do shift; done
        ivy=$2
        while [ "$1" != -retrieve ]; do shift; done
        target=$(dirname "$2"); mkdir -p "$target"
        grep -o 'name="[^"]*" rev="[^"]*"' "$ivy" | sed 's/name="//;s/" rev="/-/;s/"$//' |
            while read jar; do echo 1 > "$target/$jar.jar"; done
        """
    )
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "MILLSTREAM_CACHE": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }


def test_versions_follow_spark() -> None:
    """Kafka's connector is Spark's own version; Delta has one for each series."""
    assert coordinates("kafka", "4.1.1")[0] == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"
    assert coordinates("delta", "4.2.0")[0] == "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert coordinates("delta", "4.1.0")[0] == "io.delta:delta-spark_4.1_2.13:4.4.0"


@pytest.mark.parametrize("name", CONNECTORS)
def test_the_installed_spark_has_every_sum(name: str) -> None:
    """What is tried here is compared with a SHA-256 that ships with the package."""
    shipped = Path(__file__).parents[3] / "src/millstream/spark/sessions/connectors.sha256"
    listed = {line.split()[1]: line.split()[0] for line in shipped.read_text().splitlines()}
    for artifact in CONNECTORS[name].artifacts:
        assert len(bytes.fromhex(listed[artifact.of(spark_version()).file_name])) == 32


def test_wrong_bytes_are_not_accepted(maven: dict[str, str]) -> None:
    """A mirror that delivers something else is an error, which names the jars and coordinates."""
    with pytest.raises(
        SparkError, match=r"(?s)differ from what Spark's connector 'delta'.*io\.delta:delta-spark"
    ):
        resolve(["delta"], spark="4.2.0", environ=maven)


def test_unknown_names_and_versions_are_refused() -> None:
    """Both errors say what there is."""
    with pytest.raises(SparkError, match=r"no connector 'hudi'.*delta, iceberg, kafka"):
        resolve(["hudi"])
    with pytest.raises(SparkError, match=r"known for Spark 4\.1 and 4\.2, and this is Spark 3\.5"):
        resolve(["delta"], spark="3.5.1")


def test_no_names_need_nothing() -> None:
    """A session without connectors is started as it was."""
    assert session_settings([], environ={}) == {}
