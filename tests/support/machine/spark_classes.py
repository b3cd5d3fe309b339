"""Archives the classes that Spark's JVM loads at its start, so that the tests' sessions start
faster.

`make test` runs this as a program, with the file to write. Later JVMs map the file instead of
loading and checking 13,000 classes each (the JDK's class data sharing, JEP 350): a session starts
in 3.2 s instead of 5.5 s, with 2.5 s of processor time instead of 5, and its first query takes 1.9
s of processor time instead of 3.6. A JVM that the file does not fit (after an update of Java, for
example) silently ignores it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: The archive that `make test` creates.
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
#: The JVM's second compiler pays off only in long-lived processes: it costs 3 s per start. Small
#: heaps do not need a collector with its own threads, which costs another second.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_WRITTEN_S = 600
_SESSION = """
import tempfile

from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
session.sparkContext.parallelize(range(4), 4).map(str).collect()
with tempfile.TemporaryDirectory() as folder:
    rows = session.range(9).selectExpr("id", "cast(id as string) as text", "id % 3 as part")
    rows.write.partitionBy("part").parquet(f"{folder}/table")
    session.read.parquet(f"{folder}/table").createOrReplaceTempView("rows")
    session.sql("select part, count(*), max(text) from rows where id > 1 group by part").collect()
    session.sql("select id, same.text from rows join rows as same using (id) order by id").collect()
    files = session.readStream.schema(rows.schema).parquet(f"{folder}/table")
    stream = files.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    stream.trigger(availableNow=True).start(f"{folder}/copy").awaitTermination()
session.stop()
"""


def start_options(archive: Path = ARCHIVE) -> str:
    """The value of `SPARK_SUBMIT_OPTS` for sessions of tests."""
    options = f"{SHORT_LIVED} -Djava.io.tmpdir={tempfile.gettempdir()}"
    if not archive.exists():
        return options
    # The log would report an unsuitable archive on stdout, which belongs to the program.
    return f"{options} -XX:SharedArchiveFile={archive} -Xlog:disable"


def write(archive: Path) -> None:
    """Run a small job in a session and archive the loaded classes."""
    unfinished = archive.with_suffix(f".{os.getpid()}")
    options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    # The JVM also holds both outputs and writes the file after Python has ended: reading them to
    # their end waits for it.
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
