"""Ends a program when the command that started it is gone, however it went.

Run as a program of its own by that command: `python guard.py <seconds>`. It reads the program's
process id from standard input, again after each restart, and 0 when there is none. When standard
input ends, so has the command: the program is told to end, and killed with its group if it has not
after so many seconds. It does not import the package: it must stay small, as it lives as long as
the program does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

_LOOK_S = 0.1


def main() -> None:
    """Wait for the command's end, then end the program."""
    pid, pending = 0, b""
    while data := os.read(0, 4096):
        *lines, pending = (pending + data).split(b"\n")
        pid = int(lines[-1]) if lines else pid
    if pid:
        _end(pid, float(sys.argv[1]))


def _end(pid: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ProcessLookupError):  # that it is gone is what is wanted
        os.kill(pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            os.kill(pid, 0)
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
