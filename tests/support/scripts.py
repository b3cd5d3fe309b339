"""Running a user's script in a process group of its own, as in a terminal."""

from __future__ import annotations

import contextlib
import os
import signal as signals
import subprocess
import sys
import threading
from pathlib import Path

from support.waiting import wait_for


class Script:
    """A Python script that runs until it ends, or until the `with` block does.

    Args:
        path: the script.
        arguments: for it.
        home: an empty folder for its working directory and what it writes to stderr.
        imports: a folder whose modules it may import.
    """

    def __init__(
        self, path: Path, *arguments: str, home: Path, imports: Path | None = None
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.lines: list[str] = []
        self._stderr = home / "stderr"
        with self._stderr.open("w") as stderr:
            self.child = subprocess.Popen(
                [sys.executable, str(path), *arguments],
                cwd=home,
                env=os.environ | ({} if imports is None else {"PYTHONPATH": str(imports)}),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal_group(signals.SIGKILL)
        self.child.wait(30)
        self._reading.join(30)

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._stderr.read_text()

    @property
    def is_running(self) -> bool:
        """Whether the script itself, its children aside, has not ended."""
        return self.child.poll() is None

    def wait_for_line(self, start: str, timeout_s: float = 60) -> str:
        """The first line of its output that starts so, without that start."""
        wait_for(
            lambda: self._line(start) is not None or not self._reading.is_alive(),
            timeout_s,
            f"a line {start!r} in {self.lines}; stderr: {self.errors[-4_000:]}",
        )
        line = self._line(start)
        assert line is not None, f"no line {start!r} in {self.lines}; stderr: {self.errors}"
        return line.removeprefix(start).strip()

    def signal(self, number: signals.Signals) -> None:
        """Send a signal to the script alone."""
        os.kill(self.child.pid, number)

    def signal_group(self, number: signals.Signals) -> None:
        """Send a signal to the script and all its processes, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)

    def wait_ended(self, timeout_s: float) -> int:
        """Wait until the script has ended; its exit code."""
        return self.child.wait(timeout_s)

    def group_exists(self) -> bool:
        """Whether any process of it is still there."""
        # One that has ended is there in name until it is waited for.
        self.child.poll()
        try:
            os.killpg(self.child.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _line(self, start: str) -> str | None:
        return next((line for line in self.lines if line.startswith(start)), None)

    def _read(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout as stdout:
            self.lines.extend(line.rstrip() for line in iter(stdout.readline, ""))
