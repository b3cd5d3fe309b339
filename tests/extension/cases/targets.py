"""The fuzz targets."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from extension.cases import (
    allocations,
    client_columns,
    client_lifecycles,
    hostile,
    key_indexes,
    loops,
    pure_functions,
    structures,
    topologies,
)
from extension.cases.values import Trace


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
    "allocations": Target(allocations.generate, allocations.run),
    "lifecycles": Target(client_lifecycles.generate, client_lifecycles.run),
    "clients": Target(client_columns.generate, client_columns.run),
}

#: The target that needs a broker.
CLIENTS: Final = "clients"
#: The targets that need none.
LOCAL: Final = tuple(
    name
    for name in TARGETS
    if name != CLIENTS and (name != "allocations" or allocations.IS_AVAILABLE)
)


def trace_of(target: str, case: str) -> Trace:
    """Return the trace of a case, whose name is also its seed."""
    return TARGETS[target].generate(random.Random(case))
