"""Ends the embedded broker when the process that started it is gone, however it went.

Run as a program of its own by that process: `python guard.py <folder> <parent's pid>`. It
reads the broker's process id from standard input, again after each restart of the broker. When
the parent has died, it kills the broker and removes the folder. It does not import the package: it
must stay small, since it lives as long as the broker does.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys

_LOOK_INTERVAL_S = 0.5


class _Broker:
    """The process last named. Holding its pidfd makes sure that no later process is meant."""

    def __init__(self) -> None:
        self._pid = 0
        self._pidfd = -1

    def is_now(self, pid: int) -> None:
        self._forget()
        self._pid = pid
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfd = os.pidfd_open(pid)
            except OSError:
                # It is gone already, or this kernel has no pidfds; killing copes with both.
                self._pidfd = -1

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # that it is gone is what is wanted
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            elif self._pid > 0:
                os.kill(self._pid, signal.SIGKILL)

    def _forget(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._pidfd = -1


def main() -> None:
    """Wait for the parent's end, then clean up after it."""
    folder = sys.argv[1]
    parent = int(sys.argv[2])
    broker = _Broker()
    pending = b""
    # Standard input ends with the parent, unless one of its children inherited the other end:
    # the parent's process id changes even then.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _LOOK_INTERVAL_S)
        if not readable:
            continue
        data = os.read(0, 4096)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            broker.is_now(int(line))
    broker.kill()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
