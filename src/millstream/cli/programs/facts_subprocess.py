"""Loads programs in a subprocess.

One process cannot load two versions of a program, because their modules have the same names. Also,
a program that may be edited between two loads must not stay in the module cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from millstream.cli.programs.topologies import load_program
from millstream.errors import StreamsError
from millstream.tools.topology_facts import TopologyFacts, facts_of

#: Not `-m`, which warns about modules that are already imported.
_WRITE_FACTS: Final = (
    "from millstream.cli.programs.facts_subprocess import write_facts; write_facts()"
)


class FactsResult(msgspec.Struct, frozen=True):
    """The facts, or an error message."""

    facts: TopologyFacts | None = None
    error: str | None = None


def facts_in_subprocess(program: str) -> TopologyFacts:
    """Return the facts of a program.

    The program's output during loading goes to stderr.
    """
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        file = Path(folder, "facts.json")
        command = [sys.executable, "-c", _WRITE_FACTS, program, str(file)]
        completed = subprocess.run(command, stdout=sys.__stderr__, check=False)
        if not file.exists():
            raise StreamsError(
                f"{program} could not be loaded: the process that loaded it ended with exit code "
                f"{completed.returncode}."
            )
        result = msgspec.json.decode(file.read_bytes(), type=FactsResult)
    if result.facts is None:
        raise StreamsError(str(result.error))
    return result.facts


def write_facts() -> None:
    """Write the facts of a program to a file.

    The command-line arguments are the program and the file.
    """
    program, file = sys.argv[1:]
    try:
        found = load_program(program)
        result = FactsResult(facts_of(found.topology, found.config))
    except StreamsError as error:
        result = FactsResult(error=str(error))
    Path(file).write_bytes(msgspec.json.encode(result))
