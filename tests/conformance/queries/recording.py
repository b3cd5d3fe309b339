"""Records the answers of Kafka Streams applications on a broker to the queries of the scenarios.

PYTHONPATH=tests .venv/bin/python -m conformance.queries.recording    # record again
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

from millstream.embedded.embedded_kafka import EmbeddedKafka

RECORDED = Path(__file__).parent / "kafka_streams_4_3_1.jsonl"
_SOURCE = Path(__file__).parents[2] / "java" / "RecordQueries.java"
_TIMEOUT_S = 600


def record_answers(selected: list[Scenario], bootstrap: str) -> list[Scenario]:
    """Run scenarios in Kafka Streams and return them with the answers.

    Raises:
        OracleUnavailable: Java, its compiler or the jars of Kafka Streams are missing.
        CalledProcessError: a scenario failed; stderr has the reason.
    """
    java, path = class_path(_SOURCE)
    folder = tempfile.mkdtemp(prefix="kafka-streams-queries-")
    try:
        done = subprocess.run(
            [
                *(str(java.path), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"),
                *(f"-Djava.io.tmpdir={folder}", "-cp", path, "RecordQueries", bootstrap),
            ],
            input="".join(f"{json.dumps(each)}\n" for each in selected),
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            timeout=_TIMEOUT_S,
            check=True,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def recorded_scenarios() -> list[Scenario]:
    """Load the scenarios with the recorded answers."""
    found: list[Scenario] = []
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        part: dict[str, Any] = json.loads(line)
        if "steps" in part:
            found.append(part)
        else:
            found[-1]["steps"].append(part)
    return found


def to_jsonl(answers: list[Scenario]) -> str:
    """The text of a recording: one line for each scenario and each of its steps."""

    def lines() -> Iterator[str]:
        for scenario in answers:
            yield json.dumps({**scenario, "steps": []}, ensure_ascii=False)
            for step in scenario["steps"]:
                yield json.dumps(step, ensure_ascii=False)

    return "".join(f"{line}\n" for line in lines())


def main() -> None:
    """Record all scenarios, or run the named ones and print the results."""
    names = sys.argv[1:]
    selected = [each for each in scenarios() if not names or each["name"] in names]
    with EmbeddedKafka() as kafka:
        text = to_jsonl(record_answers(selected, kafka.bootstrap_servers))
    if names:
        sys.stdout.write(text)
    else:
        RECORDED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
