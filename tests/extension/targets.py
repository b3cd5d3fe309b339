"""The fuzz targets."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from extension import clients, hostile, key_indexes, loops, pure_functions, structures, topologies
from extension.values import Trace


class Target(NamedTuple):
    """A kind of random cases.

    Args:
        generate: creates the trace of a case; deterministic.
        run: runs a trace and returns the differences between the implementations, or other faults.
    """

    generate: Callable[[random.Random], Trace]
    run: Callable[[Trace], list[str]]


TARGETS: Final[dict[str, Target]] = {
    "functions": Target(pure_functions.generate, pure_functions.run),
    "structures": Target(structures.generate, structures.run),
    "indexes": Target(key_indexes.generate, key_indexes.run),
    "loops": Target(loops.generate, loops.run),
    "topologies": Target(topologies.generate, topologies.run),
    "hostile": Target(hostile.generate, hostile.run),
    "clients": Target(clients.generate, clients.run),
}

#: The target that needs a broker.
CLIENTS: Final = "clients"


def trace_of(target: str, case: str) -> Trace:
    """Return the trace of a case, whose name is also its seed."""
    return TARGETS[target].generate(random.Random(case))
