"""Starting a Java program on Kafka Streams beside a test, and stopping it."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from conformance.oracle.process import class_path

SOURCES = Path(__file__).parents[1] / "java"
START_TIMEOUT_S = 120
END_TIMEOUT_S = 60


class JavaProgram:
    """A running program: `said` holds its lines so far.

    Args:
        process: the process.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.said: list[str] = []
        self._process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, line: str, timeout_s: float) -> None:
        """Wait until it says a line.

        Raises:
            AssertionError: it ended, or took too long.
        """
        while True:
            try:
                next_line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                raise AssertionError(f"no {line!r} within {timeout_s} s: {self.said}") from None
            assert next_line is not None, f"it ended without {line!r}: {self.said}"
            self.said.append(next_line)
            if next_line == line:
                return

    def restored(self) -> dict[str, int]:
        """How many records were restored by now, by store."""
        totals: dict[str, int] = {}
        for line in self.said:
            if found := re.fullmatch(r"RESTORED (\S+) (\d+)", line):
                totals[found[1]] = totals.get(found[1], 0) + int(found[2])
        return totals

    def stop(self) -> None:
        """Let it commit and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.wait_for("CLOSED", END_TIMEOUT_S)
        assert self._process.wait(END_TIMEOUT_S) == 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)


@contextmanager
def java_program(name: str, arguments: Sequence[str]) -> Iterator[JavaProgram]:
    """A program of tests/java, once it says RUNNING; stopped at the end.

    Args:
        name: of its class and file.
        arguments: of its `main`.

    Raises:
        OracleUnavailable: Java, its compiler or the jars of Kafka Streams are not there.
    """
    java, path = class_path(SOURCES / f"{name}.java")
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
    with subprocess.Popen(
        [str(java.path), *options, "-cp", path, name, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            program = JavaProgram(process)
            program.wait_for("RUNNING", START_TIMEOUT_S)
            yield program
            program.stop()
        finally:
            process.kill()
