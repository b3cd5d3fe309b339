"""Runs a Java program on Kafka Streams."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.oracle.process import class_path

from support.machine.scripts import Program

SOURCES = Path(__file__).parents[2] / "java"
START_TIMEOUT_S = 120
END_TIMEOUT_S = 60


class JavaProgram(Program):
    """A running program on Kafka Streams.

    Args:
        source: the source file, which is named after the class.

    Raises:
        OracleUnavailable: Java, its compiler or the jars of Kafka Streams are missing.
    """

    def __init__(self, source: Path, *arguments: str, more: Iterable[Path] = ()) -> None:
        java, path = class_path(source, *more)
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
        super().__init__(java.path, *options, "-cp", path, source.stem, *arguments)

    def restored(self) -> dict[str, int]:
        """The number of restored records so far, by store."""
        totals: Counter[str] = Counter()
        for line in self.lines:
            if found := re.fullmatch(r"RESTORED (\S+) (\d+)", line):
                totals[found[1]] += int(found[2])
        return totals


@contextmanager
def interop(*arguments: str) -> Iterator[JavaProgram]:
    """Run the application of tests/java, from RUNNING to its orderly end."""
    with JavaProgram(SOURCES / "Interop.java", *arguments) as program:
        program.wait_for_line("RUNNING", START_TIMEOUT_S)
        yield program
        program.end_input()
        program.wait_for_line("CLOSED", END_TIMEOUT_S)
        assert program.wait_ended(END_TIMEOUT_S) == 0
