"""From the command line's words to a subcommand, and from its errors to an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Protocol

from millstream.cli import broker, describe, doctor
from millstream.errors import StreamsError

# What shells report for a program that Ctrl-C ended.
_INTERRUPTED = 130


class Subcommand(Protocol):
    """What a module must offer to be a subcommand."""

    #: The word that chooses it.
    NAME: str
    #: One line for the overview.
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what may follow the word."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


#: The subcommands, in the order of the overview.
COMMANDS: tuple[Subcommand, ...] = (broker, describe, doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the words after the program's name; None takes those of this process.

    Returns:
        The exit code: 0 for success, 1 for an error that was printed, 2 for wrong arguments (as
        argparse's SystemExit), 130 after Ctrl-C.
    """
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except StreamsError as error:
        print(f"millstream: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="millstream", description="Kafka Streams and Decaton for Python, on Spark."
    )
    parser.add_argument(
        "--version", action="version", version=f"millstream {version('millstream')}"
    )
    subparsers = parser.add_subparsers(metavar="command", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser
