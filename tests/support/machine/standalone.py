"""A standalone Spark cluster with several hosts on this machine, which have loopback addresses as
names.

Each host has its own environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pyspark
from pyspark.sql import SparkSession

from millstream.spark.jobs import SparkJobs
from support.machine.ports import free_port
from support.machine.scripts import Program
from support.waiting import wait_for

_HOME = Path(pyspark.__file__).parent
_TESTS = Path(__file__).parents[2]
_START_S = 180


class Standalone:
    """A master and a worker on each host; a context manager.

    Args:
        hosts: their addresses, such as 127.0.0.2, with environment variables.
    """

    def __init__(self, folder: Path, hosts: Mapping[str, Mapping[str, str]], slots: int) -> None:
        self._folder = folder
        self._hosts = hosts
        self._slots = slots
        self.master = f"spark://127.0.0.1:{free_port()}"
        self._all = contextlib.ExitStack()
        self._workers: dict[str, Program] = {}

    def __enter__(self) -> Self:
        address, port = self.master.removeprefix("spark://").split(":")
        self._start("master.Master", "--host", address, "--port", port, environment={})
        # A worker that does not reach the master at once retries only after twenty seconds.
        wait_for(lambda: _listens(address, int(port)), _START_S, "the master listens")
        for host, environment in self._hosts.items():
            work = str(self._folder / f"worker-{host}")
            slots = str(self._slots)
            given = ("--host", host, "-c", slots, "-m", "1g", "-d", work, self.master)
            self._workers[host] = self._start("worker.Worker", *given, environment=environment)
        return self

    def __exit__(self, *_: object) -> None:
        self._all.close()

    def kill(self, host: str) -> None:
        """Kill Spark's processes on a host."""
        self._workers[host].signal_group(signal.SIGKILL)

    def _start(self, name: str, *given: str, environment: Mapping[str, str]) -> Program:
        return self._all.enter_context(
            Program(
                _HOME / "bin" / "spark-class",
                f"org.apache.spark.deploy.{name}",
                *given,
                "--webui-port",
                "0",
                environment={"PYTHONPATH": _imports(), **environment, "SPARK_HOME": str(_HOME)},
            )
        )

    @contextlib.contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Create a session with an executor on each host."""
        session = (
            SparkSession.builder.master(self.master)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.executor.memory", "512m")
            .config("spark.executorEnv.PYTHONPATH", _imports())
            .getOrCreate()
        )
        context: Any = session.sparkContext
        context.pythonExec = sys.executable
        try:
            jobs = SparkJobs(session, "standalone")
            wait_for(lambda: jobs.hosts() >= set(self._hosts), _START_S, "executors")
            yield session
        finally:
            session.stop()


def _imports() -> str:
    """The import path with the tests' modules for executors."""
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(_TESTS))))


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
