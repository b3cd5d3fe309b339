"""The common part of the command lines of all storms."""

from __future__ import annotations

import argparse
import logging
import os
import random

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from millstream.state.storage.write_check import CHECK_WRITES


def parser_of(document: str | None, minutes: float) -> argparse.ArgumentParser:
    """Create a parser with the arguments that choose the faults and the duration.

    Args:
        document: the storm's docstring.
        minutes: the default duration.
    """
    parser = argparse.ArgumentParser(description=(document or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--only", nargs="*", help="kinds of faults, each of which occurs once")
    return parser


def add_guarantee(parser: argparse.ArgumentParser, default: str) -> None:
    """Add an argument for the application's processing guarantee."""
    choices = (AT_LEAST_ONCE, EXACTLY_ONCE_V2)
    parser.add_argument("--guarantee", choices=choices, default=default)


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the arguments, and log events from now on, starting with the seed.

    The applications verify that no write reaches the disk before its results are delivered.
    """
    arguments = parser.parse_args()
    os.environ[CHECK_WRITES] = "1"
    logging.basicConfig(format="%(asctime)s %(message)s")
    logger = logging.getLogger("storm")
    logger.setLevel(logging.INFO)
    logger.info("seed %d", arguments.seed)
    return arguments
