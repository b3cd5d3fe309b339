"""The command line of a Python program under test; `programs.py` writes it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arguments:
    """What to run, on which topics, and Kafka Streams settings by their own names."""

    job: str
    input_topic: str
    output_topic: str
    records: int
    marks: str
    settings: dict[str, str]
    profile: str | None


def parse(description: str | None) -> Arguments:
    """Reads the command line; ends the program with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("job", help="a workload")
    parser.add_argument("input_topic")
    parser.add_argument("output_topic")
    parser.add_argument("records", type=int, help="how many records the input topic has")
    parser.add_argument("marks", help="file that gets the moments of this run")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--profile", help="write a profile of the stream thread to this file")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.settings)
    return Arguments(
        options.job,
        options.input_topic,
        options.output_topic,
        options.records,
        options.marks,
        settings,
        options.profile,
    )
