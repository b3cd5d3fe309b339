"""A standalone Spark cluster of one host: a master and a worker, as processes of their own."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark

from support.machine.ports import free_port
from support.machine.scripts import Program
from support.waiting import wait_for

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"


class Standalone:
    """Runs as long as the `with` block.

    Args:
        folder: where the executors of applications work.
        cores: of the worker.

    Attributes:
        master: what a session is told.
    """

    def __init__(self, folder: Path, cores: int) -> None:
        self.master = f"spark://127.0.0.1:{free_port()}"
        self._folder = folder
        self._cores = cores
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        _, _, port = self.master.rpartition(":")
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        master = self._start("master.Master", *here, "--port", port)
        wait_for(lambda: "elected leader" in master.errors, 60, lambda: master.errors[-2_000:])
        worker = self._start(
            *("worker.Worker", *here, "--cores", str(self._cores), "--memory", "2g"),
            *("--work-dir", str(self._folder), self.master),
        )
        wait_for(lambda: "registered with master" in worker.errors, 60, lambda: worker.errors)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _start(self, name: str, *arguments: str) -> Program:
        environment = {
            # The executors import the tests' modules.
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "SPARK_HOME": str(_SPARK_CLASS.parents[1]),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        program = Program(_SPARK_CLASS, f"{_DEPLOY}.{name}", *arguments, environment=environment)
        return self._running.enter_context(program)
