"""The programs under test: their command lines and common settings.

All programs are started with the same arguments: job, input topic, output topic, number of records,
marks file, then settings as `key=value` with their Kafka Streams names. They run until SIGTERM,
then commit and exit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from environments import WHEELS, interpreter

HERE = Path(__file__).parent
PEER = HERE / "peers" / "kafka-streams"

#: All workloads.
JOBS = tuple(sorted(path.stem for path in (HERE / "workloads").glob("*.py")))
#: The programs, in the order of the tables.
PROGRAMS = ("ours", "wheel", "pure_wheel", "java", "quix", "faust", "spark", "baseline")
TITLES = {
    "ours": "Millstream",
    "wheel": "Millstream, installed from a wheel",
    "pure_wheel": "Millstream, installed without the C extension",
    "ours_in_session": "Millstream in an existing Spark session",
    "java": "Kafka Streams 4.3.1",
    "quix": "Quix Streams 3.28",
    "faust": "Faust",
    "spark": "Spark micro-batches",
    "baseline": "plain loop",
}
#: Python programs in their own folders.
CONTESTANTS = ("quix", "faust", "spark")
#: The jobs of the programs that do not support all jobs.
_SIX = frozenset({"stateless", "count", "sum", "rekeyed", "window", "wordcount"})
SUPPORTED_JOBS = {
    "baseline": frozenset({"stateless", "count", "window"}),
    "quix": _SIX,
    # Faust counts a few hundred lines of words per second: a run of the usual size takes hours.
    "faust": _SIX - {"wordcount"},
    "spark": _SIX,
}
#: Programs that restore, rebalance and support transactions.
ENGINES = frozenset({"ours", "java"})

#: Reasonable settings without tuning, identical for all programs.
SETTINGS = {
    "num.stream.threads": "1",
    "processing.guarantee": "at_least_once",
    "commit.interval.ms": "1000",
    "statestore.cache.max.bytes": str(10 * 1024 * 1024),
    "replication.factor": "1",
    "consumer.auto.offset.reset": "earliest",
    "producer.acks": "all",
    # Kafka Streams' defaults, set explicitly for all programs.
    "producer.compression.type": "none",
    "producer.linger.ms": "100",
    # The default is 16 KiB; this does not limit the requests of any program.
    "producer.batch.size": "262144",
}


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a program. `settings` extend the common settings."""

    program: str
    job: str
    round: int
    application_id: str
    bootstrap_servers: str
    input_topic: str
    output_topic: str
    records: int
    folder: Path
    profile: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    #: The variant, for the table.
    case: str = ""
    #: The mark after which SIGTERM is sent to the program.
    closes_on: str = "last"
    #: Additional topics with committed offsets of the group.
    other_topics: tuple[str, ...] = ()
    #: Whether the run is complete as soon as `records` are committed.
    is_complete_when_committed: bool = True

    @property
    def title(self) -> str:
        return f"{self.job} {self.case}".rstrip()

    @property
    def read_topics(self) -> list[str]:
        """The topics with committed offsets of the group."""
        return [self.input_topic, *self.other_topics]

    @property
    def marks(self) -> Path:
        return self.folder / "marks.jsonl"

    @property
    def log(self) -> Path:
        return self.folder / "output.log"

    def arguments(self) -> list[str]:
        """Return the arguments, which are the same for all programs."""
        settings = {
            "application.id": self.application_id,
            "bootstrap.servers": self.bootstrap_servers,
            "state.dir": str(self.folder / "state"),
            **SETTINGS,
            **self.settings,
        }
        return [
            self.job,
            self.input_topic,
            self.output_topic,
            str(self.records),
            str(self.marks),
            *(f"{key}={value}" for key, value in settings.items()),
        ]

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the program."""
        # Programs in other folders import the shared modules of this folder.
        path = [str(HERE), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}

    def command(self) -> list[str]:
        """Return the command line of the program."""
        if self.program == "java":
            quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
            return [
                tool("java"),
                quiet,
                "-jar",
                str(PEER / "target" / "peer.jar"),
                *self.arguments(),
            ]
        if self.program in CONTESTANTS:
            script = HERE / "peers" / self.program / f"on_{self.program}.py"
            return [interpreter(self.program), str(script), *self.arguments()]
        if self.program in WHEELS:
            return [interpreter(self.program), str(HERE / "ours.py"), *self.arguments()]
        profile = ["--profile", str(self.profile)] if self.profile else []
        return [sys.executable, str(HERE / f"{self.program}.py"), *profile, *self.arguments()]


def tool(name: str) -> str:
    """Return the path of a command.

    Raises:
        SystemExit: the command is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise SystemExit(
            f"The Kafka Streams peer requires {name}, which is not on the PATH: install a JDK 17 "
            "or later and Maven, or omit the peer with --programs ours."
        )
    return path


def build_peer() -> None:
    """Build the Java peer with Maven, unless its jar is newer than its sources.

    Raises:
        SystemExit: java or mvn is missing, or the build failed.
    """
    tool("java")
    jar = PEER / "target" / "peer.jar"
    sources = [PEER / "pom.xml", *PEER.glob("src/**/*.java")]
    if jar.exists() and jar.stat().st_mtime > max(file.stat().st_mtime for file in sources):
        return
    maven = [tool("mvn"), "-q", "-B", "-f", str(PEER / "pom.xml"), "package"]
    built = subprocess.run(maven, capture_output=True, text=True, timeout=900)
    if built.returncode != 0:
        output = (built.stdout + built.stderr).strip()
        raise SystemExit(f"Maven could not build the Kafka Streams peer:\n{output[-2000:]}")
