"""What is found out about one store, topic or sub-topology that two versions are to share."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Level(enum.Enum):
    """How it goes on."""

    STAYS = "stays"
    CHANGES = "changes"
    UNKNOWN = "unknown"
    BREAKS = "breaks"


class Finding(NamedTuple):
    """One thing, and what becomes of it.

    Args:
        level: stays as it is; changes, in a way that loses nothing; is unknown, where the programs
            do not tell; or breaks: state or records of the old version are lost, or read as
            something else, or the new one does not start.
        kind: store, repartition topic, input, output, sub-topology, application, cluster.
        name: which.
        what: what is different; empty if nothing is.
        remedy: what to do about it.
    """

    level: Level
    kind: str
    name: str
    what: str = ""
    remedy: str = ""
