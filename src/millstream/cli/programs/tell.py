"""A process that loads one program and writes down what is in it; see `elsewhere`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from millstream.cli.programs.elsewhere import Told
from millstream.cli.programs.topologies import found_in
from millstream.errors import StreamsError
from millstream.tools.facts import facts_of


def main() -> None:
    """Load the program that the first argument names; write to the file that the second names."""
    program, file = sys.argv[1:]
    try:
        found = found_in(program)
        told = Told(facts_of(found.topology, found.config))
    except StreamsError as error:
        told = Told(error=str(error))
    Path(file).write_bytes(msgspec.json.encode(told))


if __name__ == "__main__":
    main()
