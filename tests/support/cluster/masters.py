"""A Spark standalone cluster on hosts of a world, a broker, and what is submitted to it."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import Self

from millstream.testing import EmbeddedKafka
from support.cluster.environment import packed_environment
from support.cluster.hosts import FILES, SPARK, STATE, WORK, Host, Network
from support.machine.scripts import Program
from support.waiting import wait_for

_TESTS = Path(__file__).parents[2]
_SOURCES = _TESTS.parent / "src"
_PORT = 7077
#: Many programs on few processors: they shall start soon and be small.
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"
#: A master that starts again shall know its workers and applications.
_REMEMBERS = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={STATE}"
#: A worker that is told to go gives its executors notice.
_GIVES_NOTICE = "-Dspark.decommission.enabled=true"
#: How much of a log is shown.
_LINES = 40
#: How long Spark waits for a host of which it hears nothing; a minute and two by default.
SILENCE_S = 10


class Cluster:
    """A master, workers, a broker and a host for drivers.

    Args:
        folder: an empty one.
        workers: how many; `worker1` is the first.
        cores: of each worker, which are the slots for stream threads.
        disk_mb: the size of each worker's disk.
    """

    def __init__(
        self, folder: Path, *, workers: int = 3, cores: int = 2, disk_mb: int = 64
    ) -> None:
        spec = util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        (folder / "packed").mkdir()
        self._archive = packed_environment(folder / "packed")
        self._cores = cores
        self._daemons: list[Program] = []
        self.network = Network(folder, Path(spec.origin).parent)
        own = (_TESTS.parent, Path(sys.prefix))
        self.broker = self.network.add("broker", shown=own)
        self.kafka = EmbeddedKafka(host=self.broker.address)
        self.broker.call(self.kafka.start)
        self.master = self.network.add("master")
        self.start_master()
        # Nothing of what is developed here, or installed beside it, may be found there by chance.
        hidden = [_TESTS.parent]
        packages = Path(sysconfig.get_paths()["purelib"])
        if not packages.is_relative_to(_TESTS.parent):
            hidden.append(packages)
        self.workers = [
            self.network.add(f"worker{number}", disk_mb=disk_mb, hidden=hidden)
            for number in range(1, workers + 1)
        ]
        for worker in self.workers:
            self.start_worker(worker)
        self.driver = self.network.add("driver", files=self._archive.parent, shown=own)

    def start_master(self) -> None:
        """Spark's master, on its host. What it knows is on the disk there."""
        self._daemon(self.master, "master.Master", "--port", str(_PORT))

    def start_worker(self, host: Host) -> None:
        """Spark's worker on a host."""
        options = ("--cores", str(self._cores), "--memory", "1g", "--work-dir", str(WORK))
        self._daemon(host, "worker.Worker", *options, f"spark://master:{_PORT}")

    def crash_broker(self) -> None:
        """The broker dies without a word to anybody, and starts again with what it had."""
        self.broker.cut()
        self.kafka.kill()
        self.broker.mend()
        self.broker.call(self.kafka.start)

    @contextmanager
    def without(self, host: Host) -> Iterator[None]:
        """A worker's host has no power until the end; then it is as it was."""
        host.die()
        try:
            yield
        finally:
            host.boot()
            self.start_worker(host)

    def worker(self, name: str) -> Host:
        """The host of that name."""
        return next(each for each in self.workers if each.name == name)

    def submit(
        self, script: Path, *arguments: str, settings: Mapping[str, str] | None = None
    ) -> Program:
        """A program that `spark-submit` runs on the driver's host, in client mode.

        Args:
            script: the program.
            arguments: for it.
            settings: further ones of Spark's.
        """
        conf = {
            "spark.driver.host": "driver",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": _SMALL_JVM,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _SMALL_JVM,
            "spark.executor.heartbeatInterval": "2s",
            "spark.network.timeout": f"{SILENCE_S}s",
            "spark.network.timeoutInterval": "2s",
            "spark.ui.enabled": "false",
            "spark.speculation": "false",
            **(settings or {}),
        }
        given = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        return self.driver.start(
            SPARK / "bin" / "spark-submit",
            *("--master", f"spark://master:{_PORT}", *given),
            *("--archives", f"{FILES / self._archive.name}#environment"),
            script,
            *arguments,
            PYSPARK_DRIVER_PYTHON=sys.executable,
            PYSPARK_PYTHON="./environment/bin/python",
            PYTHONPATH=f"{_SOURCES}:{_TESTS}",
            **_spark_environment(),
        )

    def executors_said(self) -> list[str]:
        """What executors, and the Python processes in them, have written of late, Spark's news
        aside."""
        return self._executors_lines(
            lambda line: (" INFO " not in line or "StreamThread" in line) and "\tat " not in line
        )

    def executors_logged(self, text: str) -> list[str]:
        """What stream threads have logged with that text in it, of late."""
        return self._executors_lines(lambda line: "StreamThread" in line and text in line)

    def _executors_lines(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """The last lines of that kind of each executor, below its name."""
        said = []
        for worker in self.workers:
            for log in sorted(worker.file(WORK).glob("app-*/*/stderr")) if worker.is_up else []:
                lines = filter(is_wanted, log.read_text(errors="replace").splitlines())
                said += [f"--- {worker.name} {log.parent.name}", *list(lines)[-_LINES:]]
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kafka.stop()
        self.network.close()
        for daemon in self._daemons:
            with daemon:
                pass

    def _daemon(self, host: Host, what: str, *arguments: str) -> None:
        program = host.start(
            SPARK / "bin" / "spark-class",
            f"org.apache.spark.deploy.{what}",
            *("--host", host.name, "--webui-port", "8080", *arguments),
            SPARK_DAEMON_MEMORY="256m",
            SPARK_DAEMON_JAVA_OPTS=(
                f"{_SMALL_JVM} {_REMEMBERS} {_GIVES_NOTICE} -Dspark.worker.timeout={SILENCE_S}"
            ),
            **_spark_environment(),
        )
        ready = "Successfully registered with master" if "worker" in what else "I have been elected"
        wait_for(lambda: ready in program.errors, 120, lambda: program.errors[-2_000:])
        self._daemons.append(program)


def _spark_environment() -> dict[str, str]:
    # What outside is chosen for Spark, if anything, is not meant for these hosts.
    outside = {name: "" for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))}
    return {**outside, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_DIRS": str(WORK)}
