"""A Spark standalone cluster on hosts of a world, with a broker and submitted programs."""

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
#: JVM options: many programs share few processors, so they must start fast and be small.
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"
#: A restarted master recovers its workers and applications.
_RECOVERY = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={STATE}"
#: A worker that is decommissioned notifies its executors.
_DECOMMISSION = "-Dspark.decommission.enabled=true"
#: The number of log lines in messages.
_LINES = 40
#: Spark's timeout for a silent host; the defaults are one and two minutes.
SILENCE_S = 10


class Cluster:
    """A master, three workers with two slots each, a broker and a host for drivers."""

    def __init__(self, folder: Path) -> None:
        spec = util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        (folder / "packed").mkdir()
        self._archive = packed_environment(folder / "packed")
        self._daemons: list[Program] = []
        self.network = Network(folder, Path(spec.origin).parent)
        visible = (_TESTS.parent, Path(sys.prefix))
        self.broker = self.network.add("broker", shown=visible)
        self.kafka = EmbeddedKafka(host=self.broker.address)
        self.broker.call(self.kafka.start)
        self.master = self.network.add("master")
        self.start_master()
        # Workers must not find this checkout or the packages installed beside it.
        hidden = [_TESTS.parent]
        packages = Path(sysconfig.get_paths()["purelib"])
        if not packages.is_relative_to(_TESTS.parent):
            hidden.append(packages)
        self.workers = [self.network.add(f"worker{number}", hidden=hidden) for number in (1, 2, 3)]
        for worker in self.workers:
            self.start_worker(worker)
        self.driver = self.network.add("driver", files=self._archive.parent, shown=visible)

    def start_master(self) -> None:
        """Start Spark's master on its host, which also has its recovery data on disk."""
        self._daemon(self.master, "master.Master", "--port", str(_PORT))

    def start_worker(self, host: Host) -> None:
        """Start Spark's worker on a host."""
        options = ("--cores", "2", "--memory", "1g", "--work-dir", str(WORK))
        self._daemon(host, "worker.Worker", *options, f"spark://master:{_PORT}")

    def crash_broker(self) -> None:
        """Kill and disconnect the broker, then restart it with its data."""
        self.broker.cut()
        self.kafka.kill()
        self.broker.restore_link()
        self.broker.call(self.kafka.start)

    @contextmanager
    def powered_off(self, host: Host) -> Iterator[None]:
        """Power a worker's host off until the end of the block, then boot it and start the
        worker."""
        host.power_off()
        try:
            yield
        finally:
            host.boot()
            self.start_worker(host)

    def worker(self, name: str) -> Host:
        """The host with this name."""
        return next(each for each in self.workers if each.name == name)

    def submit(
        self, script: Path, *arguments: str, settings: Mapping[str, str] | None = None
    ) -> Program:
        """Submit a program with `spark-submit` on the driver's host, in client mode."""
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
        conf_options = [
            word for name, value in conf.items() for word in ("--conf", f"{name}={value}")
        ]
        return self.driver.start(
            SPARK / "bin" / "spark-submit",
            *("--master", f"spark://master:{_PORT}", *conf_options),
            *("--archives", f"{FILES / self._archive.name}#environment"),
            script,
            *arguments,
            PYSPARK_DRIVER_PYTHON=sys.executable,
            PYSPARK_PYTHON="./environment/bin/python",
            PYTHONPATH=f"{_SOURCES}:{_TESTS}",
            **_spark_environment(),
        )

    def executor_output(self) -> list[str]:
        """The latest output of executors and their Python processes, without Spark's INFO lines."""
        return self._executors_lines(
            lambda line: (" INFO " not in line or "StreamThread" in line) and "\tat " not in line
        )

    def executor_log_lines(self, text: str) -> list[str]:
        """The latest log lines of stream threads that contain a text."""
        return self._executors_lines(lambda line: "StreamThread" in line and text in line)

    def _executors_lines(self, is_selected: Callable[[str], bool]) -> list[str]:
        """The last matching lines of each executor, below its name."""
        lines = []
        for worker in self.workers:
            for log in sorted(worker.file(WORK).glob("app-*/*/stderr")) if worker.is_up else []:
                selected = filter(is_selected, log.read_text(errors="replace").splitlines())
                lines += [f"--- {worker.name} {log.parent.name}", *list(selected)[-_LINES:]]
        return lines

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
                f"{_SMALL_JVM} {_RECOVERY} {_DECOMMISSION} -Dspark.worker.timeout={SILENCE_S}"
            ),
            **_spark_environment(),
        )
        ready = "Successfully registered with master" if "worker" in what else "I have been elected"
        wait_for(lambda: ready in program.errors, 120, lambda: program.errors[-2_000:])
        self._daemons.append(program)


def _spark_environment() -> dict[str, str]:
    # Spark variables of the outer environment do not apply to these hosts.
    outside = {name: "" for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))}
    return {**outside, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_DIRS": str(WORK)}
