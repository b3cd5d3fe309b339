"""Connectors and table formats for Spark that PySpark does not bring: their jars, in one place.

A connector is named: `kafka` (Structured Streaming's own source and sink), `delta` (Delta Lake),
`iceberg` (Apache Iceberg). `CONNECTORS` says which artifacts belong to each for which Spark.

They are fetched as the jars of the embedded broker are: once, with the Ivy that PySpark brings,
into a folder of `~/.cache/millstream` (MILLSTREAM_CACHE), from Maven Central or what
MILLSTREAM_IVY_SETTINGS names. Jars whose SHA-256 ships with this package are compared with it at
each use. Of others, such as the Kafka connector of another Spark than was tried, Ivy compares the
registry's own sums when it fetches them.

There are two ways into a session. One that is not started yet takes `session_settings`. One that
runs is asked by `require`, which adds the jars to it; a connector that changes Spark's planning
(Delta) cannot be added any more then.
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
class Artifact:
    """One jar by its Maven coordinates.

    `{spark}` stands for the version of Spark, `{series}` for its first two numbers.

    Args:
        group: for example `io.delta`.
        name: for example `delta-spark_{series}_2.13`.
        version: for example `4.4.0`.
    """

    group: str
    name: str
    version: str

    def of(self, spark: str) -> Artifact:
        """The same for a version of Spark."""
        series = ".".join(spark.split(".")[:2])
        name = self.name.format(spark=spark, series=series)
        return Artifact(self.group, name, self.version.format(spark=spark, series=series))

    @property
    def coordinates(self) -> str:
        """As `spark.jars.packages` wants them."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file_name(self) -> str:
        """What the jar is called in the cache folder."""
        return f"{self.name}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class Connector:
    """What has to be in a session for one connector or table format.

    Args:
        name: what it is asked for by.
        artifacts: its jars, the one that leads to the others first; without what PySpark brings.
        probe: a class that can be loaded where the jars are.
        series: the versions of Spark that it is known to be made for.
        extension: what has to be in `spark.sql.extensions` from the session's start.
        settings: more that the session has to be started with.
    """

    name: str
    artifacts: tuple[Artifact, ...]
    probe: str
    series: tuple[str, ...]
    extension: str | None = None
    settings: tuple[tuple[str, str], ...] = ()


#: Every connector by name. Tried on Spark 4.2.0.
CONNECTORS: Final[Mapping[str, Connector]] = {
    connector.name: connector
    for connector in (
        Connector(
            "kafka",
            (
                Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "{spark}"),
                Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "{spark}"),
                Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
                Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
            ),
            probe="org.apache.spark.sql.kafka010.KafkaSourceProvider",
            series=("4.1", "4.2"),
        ),
        Connector(
            "delta",
            (
                Artifact("io.delta", "delta-spark_{series}_2.13", "4.4.0"),
                Artifact("io.delta", "delta-storage", "4.4.0"),
                Artifact("io.delta", "delta-kernel-api", "4.4.0"),
                Artifact("io.delta", "delta-kernel-defaults", "4.4.0"),
                Artifact("io.unitycatalog", "unitycatalog-client", "0.6.0"),
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
        # There is none for Spark 4.2. Only Iceberg's core is used of this, which knows no Spark.
        Connector(
            "iceberg",
            (Artifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),),
            probe="org.apache.iceberg.hadoop.HadoopTables",
            series=("4.1", "4.2"),
        ),
    )
}


def spark_version() -> str:
    """The version of the installed PySpark, such as `4.2.0`."""
    return metadata.version("pyspark")


def coordinates(name: str, spark: str | None = None) -> list[str]:
    """The Maven coordinates of a connector's jars, as `spark.jars.packages` wants them.

    Raises:
        SparkError: there is no such connector, or none for this Spark.
    """
    version = spark or spark_version()
    return [artifact.of(version).coordinates for artifact in _known(name, version).artifacts]


def resolve(
    names: Iterable[str],
    *,
    spark: str | None = None,
    environ: Mapping[str, str] = process_environment,
) -> list[Path]:
    """The jars of connectors, in a fixed order; fetches what is missing.

    Args:
        names: which connectors: see `CONNECTORS`.
        spark: the version of Spark that they are for; without it the installed PySpark's.
        environ: where MILLSTREAM_CACHE, MILLSTREAM_IVY_SETTINGS and proxies are looked up.

    Raises:
        SparkError: there is no such connector, none for this Spark, or its jars cannot be had.
    """
    version = spark or spark_version()
    found: dict[Path, None] = {}
    for name in names:
        found.update(dict.fromkeys(_jars_of(_known(name, version), version, environ)))
    return list(found)


def session_settings(
    names: Iterable[str],
    *,
    spark: str | None = None,
    environ: Mapping[str, str] = process_environment,
) -> dict[str, str]:
    """What a session has to be started with that shall have connectors.

    Args:
        names: which connectors: see `CONNECTORS`.
        spark: the version of Spark that they are for; without it the installed PySpark's.
        environ: as in `resolve`.

    Raises:
        SparkError: as `resolve`.
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    jars = resolve(wanted, spark=spark, environ=environ)
    settings = {"spark.jars": ",".join(str(jar) for jar in jars)}
    chosen = [CONNECTORS[name] for name in wanted]
    extensions = [connector.extension for connector in chosen if connector.extension]
    if extensions:
        settings[_EXTENSIONS] = ",".join(extensions)
    for connector in chosen:
        settings.update(connector.settings)
    return settings


def require(session: SparkSession, names: Iterable[str]) -> None:
    """See to it that a session that runs has connectors: adds the jars that it lacks.

    Args:
        session: a classic session.
        names: which connectors: see `CONNECTORS`.

    Raises:
        SparkError: one would have had to be there when the session was started; or as `resolve`.
    """
    for name in names:
        connector = _known(name, session.version)
        if connector.extension is not None:
            _require_at_start(session, connector)
        if not _has_class(session, connector.probe):
            _add_jars(session, connector)


def add_to_jvm(jvm: Any, names: Iterable[str]) -> None:
    """Give a driver's JVM that runs already the jars of connectors, before a session starts in it.

    PySpark keeps its JVM from one session to the next, and its first one may have had none.

    Raises:
        SparkError: as `resolve`.
    """
    loader: Any = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    for name in names:
        connector = _known(name, spark_version())
        if loader.getResource(_resource(connector.probe)) is None and hasattr(loader, "addURL"):
            for jar in resolve([name]):
                loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())


def _known(name: str, spark: str) -> Connector:
    connector = CONNECTORS.get(name)
    if connector is None:
        raise SparkError(
            f"There is no connector {name!r}: take one of {', '.join(sorted(CONNECTORS))}."
        )
    series = ".".join(spark.split(".")[:2])
    if series not in connector.series:
        raise SparkError(
            f"The connector {name!r} is known for Spark {' and '.join(connector.series)}, and this "
            f"is Spark {spark}: install a pyspark of one of these."
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
            f"{error} The jars are: {wanted}. A session of your own that has them already needs "
            "no fetching."
        ) from error


def _ivy_file(artifacts: Iterable[Artifact]) -> str:
    """Each jar alone: what they depend on beyond is on the list or in PySpark."""
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
    lines = (
        resources.files("millstream.spark.sessions")
        .joinpath("connectors.sha256")
        .read_text()
        .split("\n")
    )
    return {name: digest for digest, name in (line.split() for line in lines if line)}


def _require_at_start(session: SparkSession, connector: Connector) -> None:
    conf = session.sparkContext.getConf()
    there = re.split(r"[\s,]+", conf.get(_EXTENSIONS, "") or "")
    if connector.extension in there and _has_class(session, connector.probe):
        return
    lines = {
        "spark.jars.packages": coordinates(connector.name, session.version)[0],
        _EXTENSIONS: ",".join(part for part in (*there, connector.extension) if part),
        **dict(connector.settings),
    }
    told = "".join(f'\n  .config("{name}", "{value}")' for name, value in lines.items())
    raise SparkError(
        f"The Spark session lacks {connector.name!r}, which changes how Spark plans, so that it "
        "cannot be added to a session that runs. Start the session with\n  SparkSession.builder"
        f"{told}\nor with all of millstream.lake.spark_settings({connector.name!r}), or give no "
        "session: then Millstream starts one that has it."
    )


def _add_jars(session: SparkSession, connector: Connector) -> None:
    """Give the driver's class loader the jars, and the executors of now and later."""
    jvm: Any = session.sparkContext._jvm
    jars = _jars_of(connector, session.version, process_environment)
    loader: Any = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    if hasattr(loader, "addURL"):
        context: Any = session.sparkContext._jsc
        for jar in jars:
            loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
            context.sc().addJar(str(jar))
    if not _has_class(session, connector.probe):
        wanted = ",".join(coordinates(connector.name, session.version))
        raise SparkError(
            f"The Spark session lacks {connector.name!r}, and its driver takes no more jars. Start "
            f'it with .config("spark.jars.packages", "{wanted}").'
        )


def _has_class(session: SparkSession, name: str) -> bool:
    jvm: Any = session.sparkContext._jvm
    loader: Any = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    # Asked for as a resource: a class that is not there would be an error with a trace in the log.
    return loader.getResource(_resource(name)) is not None


def _resource(class_name: str) -> str:
    return f"{class_name.replace('.', '/')}.class"
