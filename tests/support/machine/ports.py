"""Ports of this machine for what has to know its own before it listens."""

from __future__ import annotations

import itertools
import random
import socket


def free_port() -> int:
    """Below the range of outgoing connections, so that none of these can take it."""
    for port in itertools.islice(iter(lambda: random.randrange(20_000, 32_000), None), 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no free port")
