"""Keeps what Spark's JVM has loaded at its start, so that the tests' many sessions start faster.

`make test` calls this as a program, with the file to write. Later JVMs map the file instead of
loading and checking 13,000 classes each (the JDK's class data sharing, JEP 350): a session is
there after 3.2 s in place of 5.5 s, for 2.5 s of a processor in place of 5. A JVM to which the
file does not fit, for example after an update of Java, leaves it aside without a word.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Where `make test` has it kept.
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
#: The JVM's second compiler pays for itself only in processes that live longer: 3 s a start.
_COMPILER = "-XX:TieredStopAtLevel=1"
_WRITTEN_S = 180
_SESSION = """
from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
session.sparkContext.parallelize(range(4), 4).map(str).collect()
session.stop()
"""


def start_options(archive: Path = ARCHIVE) -> str:
    """What `SPARK_SUBMIT_OPTS` should say for sessions of tests."""
    if not archive.exists():
        return _COMPILER
    # The log would tell on stdout, which is a program's own, that an archive does not fit.
    return f"{_COMPILER} -XX:SharedArchiveFile={archive} -Xlog:disable"


def write(archive: Path) -> None:
    """Run a small job on a session and keep what it has loaded."""
    unfinished = archive.with_suffix(f".{os.getpid()}")
    options = f"{_COMPILER} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    # Both outputs are the JVM's too, which writes the file after Python has ended: whoever reads
    # them to their end has waited for it.
    ended = subprocess.run(
        [sys.executable, "-c", _SESSION],
        env=os.environ | {"SPARK_SUBMIT_OPTS": options},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_WRITTEN_S,
        text=True,
    )
    if ended.returncode or not unfinished.exists():
        sys.exit(f"Spark's classes could not be kept in {archive}:\n{ended.stdout}")
    unfinished.replace(archive)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
