"""Programs that a test starts, each in its own process group, as in a terminal."""

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

_TESTS = Path(__file__).parents[2]
#: The time to read the last output of a program.
_LAST_LINES_S = 2.0


class Program:
    """A command that runs until it ends or the `with` block does, with all its children.

    Args:
        home: its working directory; by default the test's.
        environment: variables in addition to the test's.
        clean_environment: whether the test's variables are left out.

    Attributes:
        lines: its output to stdout so far.
    """

    def __init__(
        self,
        *command: str | Path,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
        clean_environment: bool = False,
    ) -> None:
        self.lines: list[str] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = subprocess.Popen(
            command,
            cwd=home,
            env={**({} if clean_environment else os.environ), **(environment or {})},
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
        """The output to stderr."""
        # Read with an explicit offset: the child writes at the shared file position.
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    @property
    def is_running(self) -> bool:
        """Whether the program itself is running, regardless of its children."""
        return self._child.poll() is None

    def wait_for_line(self, start: str, timeout_s: float = 60) -> str:
        """Wait for a line of output with this prefix, and return the rest of the line."""
        wait_for(
            lambda: self._line(start) is not None or not self._reading.is_alive(),
            timeout_s,
            lambda: f"a line {start!r} in {self.lines}; stderr: {self.errors[-4_000:]}",
        )
        line = self._line(start)
        assert line is not None, f"no line {start!r} in {self.lines}; stderr: {self.errors}"
        return line.removeprefix(start).strip()

    def write_line(self, line: str) -> None:
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
        """Send SIGKILL to the program alone; returns when it has ended."""
        self._child.kill()
        self._child.wait(30)

    def wait_ended(self, timeout_s: float) -> int:
        """Wait until the program has ended and its last output is read; return the exit code."""
        code = self._child.wait(timeout_s)
        # There is no end of file while a child holds the pipe open.
        self._reading.join(_LAST_LINES_S)
        return code

    def group_exists(self) -> bool:
        """Whether any process of its group exists, except for those in groups of their own."""
        # A terminated program remains a zombie until it is polled.
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
        home: an empty folder for its working directory.
        imports: a folder with modules that it can import.
    """

    def __init__(
        self, path: Path, *arguments: str, home: Path, imports: Path | None = None
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        found = [str(imports or ""), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, found))}
        super().__init__(sys.executable, path, *arguments, home=home, environment=environment)


def support_script(name: str, *arguments: str, home: Path) -> Script:
    """A script of `support.running`, by its file name."""
    return Script(_TESTS / "support" / "running" / name, *arguments, home=home, imports=_TESTS)


def python(code: str, *arguments: str | Path) -> Program:
    """Run Python code as a program."""
    return Program(sys.executable, "-c", code, *arguments)


def processes_in(folder: Path) -> list[int]:
    """The processes with this working directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(process / "cwd")) == folder.resolve():
                found.append(int(process.name))
    return found
