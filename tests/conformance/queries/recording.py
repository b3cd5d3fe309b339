"""What Kafka Streams answers to the scenarios, recorded: applications of it on a broker are asked.

PYTHONPATH=tests .venv/bin/python -m conformance.queries.recording    # record anew
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.oracle.process import class_path
from conformance.queries.scenarios import Scenario, scenarios

from millstream.embedded.broker import EmbeddedKafka

RECORDED = Path(__file__).parent / "kafka_streams_4_3_1.jsonl"
_SOURCE = Path(__file__).parents[2] / "java" / "RecordQueries.java"
_TIMEOUT_S = 600


def answered(asked: list[Scenario], bootstrap: str) -> list[Scenario]:
    """The scenarios with what Kafka Streams answers, on this broker.

    Raises:
        OracleUnavailable: Java, its compiler or the jars of Kafka Streams are not there.
        CalledProcessError: a scenario went wrong; says how on stderr.
    """
    java, path = class_path(_SOURCE)
    folder = tempfile.mkdtemp(prefix="kafka-streams-queries-")
    try:
        done = subprocess.run(
            [
                *(str(java.path), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"),
                *(f"-Djava.io.tmpdir={folder}", "-cp", path, "RecordQueries", bootstrap),
            ],
            input="".join(f"{json.dumps(each)}\n" for each in asked),
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            timeout=_TIMEOUT_S,
            check=True,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def recorded() -> list[Scenario]:
    """The scenarios with the answers that were recorded."""
    found: list[Scenario] = []
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        told: dict[str, Any] = json.loads(line)
        if "steps" in told:
            found.append(told)
        else:
            found[-1]["steps"].append(told)
    return found


def written(answers: list[Scenario]) -> str:
    """The text of a recording: a line for each scenario, and one for each of its steps."""

    def lines() -> Iterator[str]:
        for scenario in answers:
            yield json.dumps({**scenario, "steps": []}, ensure_ascii=False)
            for step in scenario["steps"]:
                yield json.dumps(step, ensure_ascii=False)

    return "".join(f"{line}\n" for line in lines())


def main() -> None:
    """Record anew; with the names of scenarios, only print what they give."""
    wanted = sys.argv[1:]
    asked = [each for each in scenarios() if not wanted or each["name"] in wanted]
    with EmbeddedKafka() as kafka:
        text = written(answered(asked, kafka.bootstrap_servers))
    if wanted:
        sys.stdout.write(text)
    else:
        RECORDED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
