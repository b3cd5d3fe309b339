"""Ends a program when the command that started it has ended or was killed.

The command runs this file as a process: `python parent_watch.py <seconds>`. It writes the program's
process id to the standard input of this process after each start, and 0 when no program is running.
At the end of standard input, this process terminates the program, and kills the program's process
group after the given number of seconds. It does not import the package, because it runs as long as
the command and must stay small.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

_POLL_INTERVAL_S = 0.1


def main() -> None:
    """Wait for the end of the command, then end the program."""
    pid, pending = 0, b""
    while data := os.read(0, 4096):
        *lines, pending = (pending + data).split(b"\n")
        pid = int(lines[-1]) if lines else pid
    if pid:
        _end(pid, float(sys.argv[1]))


def _end(pid: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL_S)
            os.kill(pid, 0)
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
