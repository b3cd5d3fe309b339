"""Programs beside a test, each in a process group of its own, as in a terminal."""

from __future__ import annotations

import contextlib
import os
import signal as signals
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from support.waiting import wait_for

#: How long what a program wrote last may take to be read.
_LAST_LINES_S = 2.0


class Program:
    """A command that runs until it ends, or until the `with` block does, with all its children.

    Args:
        command: the program and its arguments.
        home: its working directory; by default that of the test.
        environment: variables on top of those of the test.
        alone: whether these are all that it has, and none is the test's.

    Attributes:
        lines: what it has written to stdout so far.
    """

    def __init__(
        self,
        *command: str | Path,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
        alone: bool = False,
    ) -> None:
        self.lines: list[str] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = subprocess.Popen(
            command,
            cwd=home,
            env={**({} if alone else os.environ), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self.pid = self._child.pid
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal_group(signals.SIGKILL)
        self._child.wait(30)
        self._reading.join(30)
        self.end_input()
        self._stderr.close()

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        # Read by place: the child writes where the file that both share is positioned.
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    @property
    def is_running(self) -> bool:
        """Whether the program itself, its children aside, has not ended."""
        return self._child.poll() is None

    def wait_for_line(self, start: str, timeout_s: float = 60) -> str:
        """The first line of its output that starts so, without that start."""
        wait_for(
            lambda: self._line(start) is not None or not self._reading.is_alive(),
            timeout_s,
            lambda: f"a line {start!r} in {self.lines}; stderr: {self.errors[-4_000:]}",
        )
        line = self._line(start)
        assert line is not None, f"no line {start!r} in {self.lines}; stderr: {self.errors}"
        return line.removeprefix(start).strip()

    def say(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def end_input(self) -> None:
        """Close its stdin."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()

    def signal(self, number: signals.Signals) -> None:
        """Send a signal to the program alone."""
        os.kill(self.pid, number)

    def signal_group(self, number: signals.Signals) -> None:
        """Send a signal to the program and all its processes, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to the program alone; returns when it is gone."""
        self._child.kill()
        self._child.wait(30)

    def wait_ended(self, timeout_s: float) -> int:
        """Wait until the program has ended, and what it wrote last is read; its exit code."""
        code = self._child.wait(timeout_s)
        # Without an end where a child of its own still holds the other end.
        self._reading.join(_LAST_LINES_S)
        return code

    def group_exists(self) -> bool:
        """Whether any process of its group is still there: not those in groups of their own."""
        # One that has ended is there in name until it is waited for.
        self._child.poll()
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _line(self, start: str) -> str | None:
        return next((line for line in self.lines if line.startswith(start)), None)

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as stdout:
            self.lines.extend(line.rstrip() for line in iter(stdout.readline, ""))


class Script(Program):
    """A Python script.

    Args:
        path: the script.
        arguments: for it.
        home: an empty folder for its working directory.
        imports: a folder whose modules it may import.
    """

    def __init__(
        self, path: Path, *arguments: str, home: Path, imports: Path | None = None
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        found = [str(imports or ""), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, found))}
        super().__init__(sys.executable, path, *arguments, home=home, environment=environment)


def python(code: str, *arguments: str | Path) -> Program:
    """A program that is Python code."""
    return Program(sys.executable, "-c", code, *arguments)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def processes_in(folder: Path) -> list[int]:
    """The processes whose working directory is a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(process / "cwd")) == folder.resolve():
                found.append(int(process.name))
    return found
