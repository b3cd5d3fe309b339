"""Free ports for programs that must know their port before they listen."""

from __future__ import annotations

import itertools
import random
import socket


def free_port() -> int:
    """A free port below the range of outgoing connections, so that none of them can take it."""
    for port in itertools.islice(iter(lambda: random.randrange(20_000, 32_000), None), 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no free port")
