"""The command line of a Python program under test, as built by `programs.py`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arguments:
    """The job, its topics, and settings by their Kafka Streams names."""

    job: str
    input_topic: str
    output_topic: str
    records: int
    marks: str
    settings: dict[str, str]
    profile: str | None


def parse(description: str | None) -> Arguments:
    """Parse the command line. Invalid arguments end the program with a usage message."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("job", help="a workload")
    parser.add_argument("input_topic")
    parser.add_argument("output_topic")
    parser.add_argument("records", type=int, help="number of records in the input topic")
    parser.add_argument("marks", help="file for the times of this run's events")
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
