"""Jars of connectors: their versions for each Spark, and messages if they cannot be downloaded.

A small program replaces Java and its Ivy, as in the tests of the broker's jars.
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
    """An environment whose Java delivers empty jars for ivy.xml."""
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
    """Kafka's connector has Spark's version; Delta has one for each Spark series."""
    assert coordinates("kafka", "4.1.1")[0] == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"
    assert coordinates("delta", "4.2.0")[0] == "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert coordinates("delta", "4.1.0")[0] == "io.delta:delta-spark_4.1_2.13:4.4.0"


@pytest.mark.parametrize("name", CONNECTORS)
def test_the_installed_spark_has_all_checksums(name: str) -> None:
    """Downloads are compared with SHA-256 sums that ship with the package."""
    shipped = Path(__file__).parents[4] / "src/millstream/spark/sessions/connectors.sha256"
    listed = {line.split()[1]: line.split()[0] for line in shipped.read_text().splitlines()}
    for artifact in CONNECTORS[name].artifacts:
        assert len(bytes.fromhex(listed[artifact.of(spark_version()).file_name])) == 32


def test_wrong_checksums_are_rejected(maven: dict[str, str]) -> None:
    """If a mirror delivers other bytes, an error names the jars and coordinates."""
    with pytest.raises(
        SparkError,
        match=r"(?s)do not match the checksums of Spark's connector 'delta'.*io\.delta:delta-spark",
    ):
        resolve(["delta"], spark="4.2.0", environ=maven)


def test_unknown_names_and_versions_are_rejected() -> None:
    """Both errors list the supported ones."""
    with pytest.raises(SparkError, match=r"Unknown connector 'hudi'.*delta, iceberg, kafka"):
        resolve(["hudi"])
    with pytest.raises(SparkError, match=r"supports Spark 4\.1 and 4\.2, but this is Spark 3\.5"):
        resolve(["delta"], spark="3.5.1")


def test_no_connectors_need_no_download() -> None:
    """A session without connectors needs no download."""
    assert session_settings([]) == {}
