"""Adds Spark connectors and table formats to a session.

PySpark does not include them. The connectors are `kafka` (source and sink of Structured Streaming),
`delta` (Delta Lake) and `iceberg` (Apache Iceberg). `CONNECTORS` lists their artifacts for each
version of Spark.

The jars are fetched in the same way as those of the embedded broker: once, with PySpark's Ivy, into
a folder in `~/.cache/millstream` (MILLSTREAM_CACHE), from Maven Central or the repositories in
MILLSTREAM_IVY_SETTINGS. This package contains the SHA-256 digests of most jars, which are verified
at each use. For other jars, such as the Kafka connector of an untested Spark version, Ivy verifies
the registry's checksums after the download.

`session_settings` returns the settings for a new session with connectors. `require` adds the jars
to a running session, unless the connector changes Spark's query planning (Delta).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from os import environ as process_environment
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.embedded.jars import JarSet, cache_parent, fetched_jars
from millstream.embedded.java import find_java
from millstream.errors import EmbeddedKafkaError, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS: Final = "spark.sql.extensions"


@dataclass(frozen=True, slots=True)
class MavenArtifact:
    """The Maven coordinates of a jar.

    An example is `io.delta`, `delta-spark_{series}_2.13`, `4.4.0`. `{spark}` is replaced by the
    version of Spark, `{series}` by its first two numbers.
    """

    group: str
    name: str
    version: str

    def of(self, spark: str) -> MavenArtifact:
        series = ".".join(spark.split(".")[:2])
        name = self.name.format(spark=spark, series=series)
        return MavenArtifact(self.group, name, self.version.format(spark=spark, series=series))

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class Connector:
    name: str
    #: The jars that PySpark does not include. The first jar depends on the others.
    artifacts: tuple[MavenArtifact, ...]
    #: A class that exists if the jars have been added.
    probe: str
    #: The supported versions of Spark.
    series: tuple[str, ...]
    #: The entry of `spark.sql.extensions` that the session needs at its start.
    extension: str | None = None
    #: Further settings that the session needs at its start.
    settings: tuple[tuple[str, str], ...] = ()


#: All connectors by name. Tested with Spark 4.1.1 and 4.2.0.
CONNECTORS: Final[Mapping[str, Connector]] = {
    connector.name: connector
    for connector in (
        Connector(
            "kafka",
            (
                MavenArtifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "{spark}"),
                MavenArtifact(
                    "org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "{spark}"
                ),
                MavenArtifact("org.apache.kafka", "kafka-clients", "3.9.2"),
                MavenArtifact("org.apache.commons", "commons-pool2", "2.13.1"),
            ),
            probe="org.apache.spark.sql.kafka010.KafkaSourceProvider",
            series=("4.1", "4.2"),
        ),
        Connector(
            "delta",
            (
                MavenArtifact("io.delta", "delta-spark_{series}_2.13", "4.4.0"),
                MavenArtifact("io.delta", "delta-storage", "4.4.0"),
                MavenArtifact("io.delta", "delta-kernel-api", "4.4.0"),
                MavenArtifact("io.delta", "delta-kernel-defaults", "4.4.0"),
                MavenArtifact("io.unitycatalog", "unitycatalog-client", "0.6.0"),
            ),
            probe="io.delta.tables.DeltaTable",
            series=("4.1", "4.2"),
            extension="io.delta.sql.DeltaSparkSessionExtension",
            settings=(
                (
                    "spark.sql.catalog.spark_catalog",
                    "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                ),
            ),
        ),
        # No version for Spark 4.2 exists. Millstream only uses Iceberg's core, which is independent
        # of Spark.
        Connector(
            "iceberg",
            (MavenArtifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),),
            probe="org.apache.iceberg.hadoop.HadoopTables",
            series=("4.1", "4.2"),
        ),
    )
}


def spark_version() -> str:
    """Return the version of the installed PySpark, such as `4.2.0`."""
    return metadata.version("pyspark")


def coordinates(name: str, spark: str | None = None) -> list[str]:
    """Return the coordinates of a connector's jars.

    They have the format of `spark.jars.packages`.
    """
    version = spark or spark_version()
    artifacts = _find_connector(name, version).artifacts
    return [artifact.of(version).coordinates for artifact in artifacts]


def resolve(
    names: Iterable[str],
    *,
    spark: str | None = None,
    environ: Mapping[str, str] = process_environment,
) -> list[Path]:
    """Return the jars of connectors in a fixed order, after fetching missing jars.

    `environ` provides MILLSTREAM_CACHE, MILLSTREAM_IVY_SETTINGS and the proxies. Raises a
    `SparkError` if a connector is unknown or does not support this version of Spark, or if its jars
    cannot be fetched.
    """
    version = spark or spark_version()
    connectors = (_find_connector(name, version) for name in names)
    jars = (jar for each in connectors for jar in _jars_of(each, version, environ))
    return list(dict.fromkeys(jars))


def session_settings(names: Iterable[str]) -> dict[str, str]:
    """Return the settings for starting a session with connectors."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    settings = {"spark.jars": ",".join(map(str, resolve(wanted)))}
    chosen = [CONNECTORS[name] for name in wanted]
    extensions = [connector.extension for connector in chosen if connector.extension]
    if extensions:
        settings[_EXTENSIONS] = ",".join(extensions)
    for connector in chosen:
        settings.update(connector.settings)
    return settings


def require(session: SparkSession, names: Iterable[str]) -> None:
    """Add missing connectors to a running classic session, or raise a `SparkError`."""
    for name in names:
        connector = _find_connector(name, session.version)
        if connector.extension is not None:
            _require_at_start(session, connector)
        if not _has_class(session.sparkContext._jvm, connector.probe):
            _add_jars(session, connector)


def add_to_jvm(jvm: Any, names: Iterable[str]) -> None:
    """Add the jars of connectors to the running JVM of the driver.

    Call this before a session starts in the JVM. PySpark reuses its JVM for later sessions, and the
    first session may have had no connectors.
    """
    for name in names:
        connector = _find_connector(name, spark_version())
        if not _has_class(jvm, connector.probe) and hasattr(_loader(jvm), "addURL"):
            for jar in resolve([name]):
                _loader(jvm).addURL(jvm.java.io.File(str(jar)).toURI().toURL())


def _find_connector(name: str, spark: str) -> Connector:
    connector = CONNECTORS.get(name)
    if connector is None:
        raise SparkError(
            f"Unknown connector {name!r}. The connectors are {', '.join(sorted(CONNECTORS))}."
        )
    series = ".".join(spark.split(".")[:2])
    if series not in connector.series:
        raise SparkError(
            f"The connector {name!r} supports Spark {' and '.join(connector.series)}, but this is "
            f"Spark {spark}. Install one of the supported versions of pyspark."
        )
    return connector


def _jars_of(connector: Connector, spark: str, environ: Mapping[str, str]) -> list[Path]:
    artifacts = [artifact.of(spark) for artifact in connector.artifacts]
    shipped = _shipped_sums()
    first = artifacts[0]
    jars = JarSet(
        folder=cache_parent(environ) / f"{first.name}-{first.version}",
        sums={artifact.file_name: shipped.get(artifact.file_name) for artifact in artifacts},
        dependencies=_ivy_file(artifacts),
        what=f"Spark's connector {connector.name!r}",
    )
    try:
        return fetched_jars(jars, find_java(environ), environ)
    except EmbeddedKafkaError as error:
        wanted = ", ".join(artifact.coordinates for artifact in artifacts)
        raise SparkError(
            f"{error} The jars are: {wanted}. Alternatively, pass a session that already has them."
        ) from error


def _ivy_file(artifacts: Iterable[MavenArtifact]) -> str:
    """Return an Ivy file without transitive dependencies.

    Transitive dependencies are either listed as artifacts or included in PySpark.
    """
    dependencies = "".join(
        f'<dependency org="{artifact.group}" name="{artifact.name}" rev="{artifact.version}" '
        'conf="default->default" transitive="false"/>'
        for artifact in artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="millstream" module="spark-connector"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _shipped_sums() -> dict[str, str]:
    sums = resources.files("millstream.spark.sessions").joinpath("connectors.sha256").read_text()
    return {name: digest for digest, name in map(str.split, sums.splitlines())}


def _require_at_start(session: SparkSession, connector: Connector) -> None:
    conf = session.sparkContext.getConf()
    present = re.split(r"[\s,]+", conf.get(_EXTENSIONS, "") or "")
    jvm: Any = session.sparkContext._jvm
    if connector.extension in present and _has_class(jvm, connector.probe):
        return
    settings = {
        "spark.jars.packages": coordinates(connector.name, session.version)[0],
        _EXTENSIONS: ",".join(part for part in (*present, connector.extension) if part),
        **dict(connector.settings),
    }
    lines = "".join(f'\n  .config("{name}", "{value}")' for name, value in settings.items())
    raise SparkError(
        f"The Spark session lacks {connector.name!r}, which changes Spark's query planning, so it "
        "cannot be added to a running session. Start the session with\n  SparkSession.builder"
        f"{lines}\nor with all settings of millstream.lake.spark_settings({connector.name!r}), or "
        "pass no session, so that Millstream starts one with the connector."
    )


def _add_jars(session: SparkSession, connector: Connector) -> None:
    """Add the jars to the driver's class loader, and to current and future executors."""
    jvm: Any = session.sparkContext._jvm
    jars = _jars_of(connector, session.version, process_environment)
    if hasattr(loader := _loader(jvm), "addURL"):
        context: Any = session.sparkContext._jsc
        for jar in jars:
            loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
            context.sc().addJar(str(jar))
    if not _has_class(jvm, connector.probe):
        wanted = ",".join(coordinates(connector.name, session.version))
        raise SparkError(
            f"The Spark session lacks {connector.name!r}, and jars cannot be added to its driver. "
            f'Start the session with .config("spark.jars.packages", "{wanted}").'
        )


def _loader(jvm: Any) -> Any:
    return jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()


def _has_class(jvm: Any, name: str) -> bool:
    # Looked up as a resource, because loading a missing class would log a stack trace.
    return _loader(jvm).getResource(f"{name.replace('.', '/')}.class") is not None
