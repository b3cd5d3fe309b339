"""Goal: the end of a worker is detected although a forked child survives."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

_WORKER = """
import os, socket, sys, time
from millstream.spark.worker.process_setup import closed_in_forked_children
spark = socket.socket(fileno=int(sys.argv[1]))
with closed_in_forked_children():
    own, other = socket.socketpair()
    if os.fork() == 0:
        # What was opened since is the user's, and the descriptor of Spark's is taken.
        own.sendall(b"from the child")
        assert spark.fileno() not in (os.dup(0), os.dup(0))
        time.sleep(60)
        os._exit(0)
    assert other.recv(100) == b"from the child"
    spark.sendall(b"alive")
    time.sleep(60)
"""


def test_a_child_does_not_keep_the_connection_of_its_parent_open() -> None:
    ours, workers = socket.socketpair()
    with ours:
        ours.settimeout(20)
        with workers:
            worker = subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(workers.fileno())],
                pass_fds=[workers.fileno()],
                start_new_session=True,
            )
        try:
            assert ours.recv(100) == b"alive"
            worker.kill()
            worker.wait(timeout=10)
            assert ours.recv(100) == b"", "the connection is closed"
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
