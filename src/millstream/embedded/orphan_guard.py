"""A program that kills the embedded broker when its parent process ends.

The parent runs it as `python orphan_guard.py <folder> <parent's pid>`. The program reads the
broker's process id from standard input, initially and after each restart of the broker. When the
parent has ended, the program kills the broker and removes the folder. To use little memory, the
program does not import the package, because it runs as long as the broker.
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
    """The current broker process.

    Its pidfd cannot refer to a later process with the same id.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._pidfd = -1

    def set_pid(self, pid: int) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._pid, self._pidfd = pid, -1
        if hasattr(os, "pidfd_open"):
            # Fails if the process has already ended or this kernel has no pidfds. `kill` handles
            # both.
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(pid)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # already ended
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            elif self._pid > 0:
                os.kill(self._pid, signal.SIGKILL)


def main() -> None:
    """Wait for the end of the parent, then clean up."""
    folder = sys.argv[1]
    parent = int(sys.argv[2])
    broker = _Broker()
    pending = b""
    # Standard input ends with the parent, unless one of its children inherited the other end.
    # `getppid` changes even then.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _LOOK_INTERVAL_S)
        if not readable:
            continue
        data = os.read(0, 4096)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            broker.set_pid(int(line))
    broker.kill()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
