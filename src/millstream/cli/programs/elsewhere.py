"""Programs that are loaded in a process of their own.

Two versions of a program have modules of the same names, of which one process would take the first
for both; and a program that is edited while somebody looks would be remembered as it was.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from millstream.errors import StreamsError
from millstream.tools.facts import TopologyFacts


class Told(msgspec.Struct, frozen=True):
    """The facts, or why there are none."""

    facts: TopologyFacts | None = None
    error: str | None = None


def facts_elsewhere(program: str) -> TopologyFacts:
    """The facts of a program; what it prints while it is loaded goes to stderr.

    Raises:
        StreamsError: as `topology_of`.
    """
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        file = Path(folder, "told.json")
        words = [sys.executable, "-m", "millstream.cli.programs.tell", program, str(file)]
        ended = subprocess.run(words, stdout=sys.__stderr__, check=False)
        if not file.exists():
            raise StreamsError(
                f"{program} could not be loaded: the process that did so ended with exit code "
                f"{ended.returncode}."
            )
        told = msgspec.json.decode(file.read_bytes(), type=Told)
    if told.facts is None:
        raise StreamsError(str(told.error))
    return told.facts
