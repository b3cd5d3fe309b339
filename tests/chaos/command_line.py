"""What the command lines of all storms have in common."""

from __future__ import annotations

import argparse
import logging
import os
import random

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from millstream.state.storage.write_check import CHECK_WRITES


def parser_of(document: str | None, minutes: float) -> argparse.ArgumentParser:
    """Which faults come, and for how long.

    Args:
        document: the storm's docstring.
        minutes: how long it takes, unless it is told.
    """
    parser = argparse.ArgumentParser(description=(document or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--only", nargs="*", help="kinds of faults, each once")
    return parser


def add_guarantee(parser: argparse.ArgumentParser, default: str) -> None:
    """The processing guarantee of the application."""
    choices = (AT_LEAST_ONCE, EXACTLY_ONCE_V2)
    parser.add_argument("--guarantee", choices=choices, default=default)


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What was given. From now on it is told what happens, the seed first.

    The applications verify that no write is on disk before everything that it caused is delivered.
    """
    arguments = parser.parse_args()
    os.environ[CHECK_WRITES] = "1"
    logging.basicConfig(format="%(asctime)s %(message)s")
    logger = logging.getLogger("storm")
    logger.setLevel(logging.INFO)
    logger.info("seed %d", arguments.seed)
    return arguments
