"""The fixtures that Kafka Streams itself made, or Decaton, and how each is made again.

The recorders are the Java programs of tests/java and the oracle of the conformance tests. What a
fixture asks is part of it; only the answers are Kafka Streams'. So recording takes the questions
from the file and answers them anew.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.oracle.process import KafkaStreams, OracleUnavailable, class_path
from decaton import DecatonUnavailable, command

TESTS = Path(__file__).parents[1]
UNIT = TESTS / "unit"
JAVA = TESTS / "java"
_TIMEOUT_S = 300

#: What the operations of recorded topologies leave out, because no name or topic depends on it.
_FUNCTIONS = {
    "aggregate": {"init": "const:0", "adder": "concat"},
    "filter": {"predicate": "v|not_null"},
    "flat_map": {"key": "k", "values": "v|dup:2"},
    "flat_map_values": {"values": "v|dup:2"},
    "group_by": {"key": "k"},
    "map": {"key": "k", "value": "v"},
    "map_values": {"value": "v"},
    "reduce": {"reducer": "last"},
    "select_key": {"key": "k"},
}


@dataclass(frozen=True)
class Recording:
    """A fixture that can be made again.

    Args:
        path: the file.
        answer: its text with Kafka Streams' answers of now, given its text.
    """

    path: Path
    answer: Callable[[str], str]

    def again(self) -> str:
        """What the file should hold.

        Raises:
            OracleUnavailable: Java, its compiler or the jars of Kafka Streams are not there.
        """
        return self.answer(self.path.read_text())


def run_recorder(main: str, text: str = "") -> str:
    """What a recorder of tests/java prints, given a text.

    Args:
        main: the full name of its class; the file has the last part of it.
        text: its standard input.

    Raises:
        OracleUnavailable: Java, its compiler or the jars of Kafka Streams are not there.
        CalledProcessError: it failed.
    """
    java, path = class_path(JAVA / f"{main.rsplit('.', 1)[-1]}.java")
    done = subprocess.run(
        [str(java.path), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, main],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=_TIMEOUT_S,
        check=True,
    )
    return done.stdout


def assignments(text: str) -> str:
    """Groups, one a line, and what the assignors decide about them."""
    return run_recorder(
        "org.apache.kafka.streams.processor.internals.assignment.RecordAssignments", text
    )


def wire_formats(text: str) -> str:
    """Subscriptions and assignments in bytes; what is in them, the recorder says."""
    bytes_of: dict[str, Any] = json.loads(run_recorder("RecordWireFormats"))
    produced_by = json.loads(text)["produced_by"]
    return json.dumps({"produced_by": produced_by, **bytes_of}, indent=1) + "\n"


def metrics(text: str) -> str:
    """The metrics of Kafka Streams, one a line; there is nothing to ask."""
    return run_recorder("RecordMetrics")


def polls(text: str) -> str:
    """Sequences of additions to a queue, and what was polled between them."""
    lines = (json.dumps(each, separators=(",", ":")) for each in json.loads(text))
    answered = run_recorder("RecordPriorityQueue", "".join(f"{line}\n" for line in lines))
    return "[" + ",\n".join(answered.splitlines()) + "]\n"


def decaton_tasks(text: str) -> str:
    """Tasks, and what Decaton writes of them; bytes, and what Decaton reads of them."""
    fixture: dict[str, Any] = json.loads(text)
    asked = "".join("\t".join(case["ask"]) + "\n" for case in fixture["cases"])
    try:
        line = command(JAVA / "RecordDecatonTasks.java")
    except DecatonUnavailable as why:
        raise OracleUnavailable(str(why)) from why
    done = subprocess.run(
        line, input=asked, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
    )
    answers = [answer.split("\t") for answer in done.stdout.splitlines()]
    cases = [
        {**case, "answer": answer} for case, answer in zip(fixture["cases"], answers, strict=True)
    ]
    told = ",\n".join(json.dumps(case) for case in cases)
    return f'{{"produced_by": {json.dumps(fixture["produced_by"])}, "cases": [\n{told}\n]}}\n'


def topologies(text: str) -> str:
    """Operations of the DSL, and what Kafka Streams builds of them."""
    with KafkaStreams() as kafka_streams:
        cases = [_described(case, kafka_streams) for case in json.loads(text)]
    return "[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n"


def _described(case: dict[str, Any], kafka_streams: KafkaStreams) -> dict[str, Any]:
    answer = kafka_streams.run(
        {
            "name": case["name"],
            "topology": list(map(_complete, case["operations"])),
            "events": [],
            "config": {"optimize": "all" if case["optimize"] else "none", "dsl_store": "in_memory"},
            "describe_text": True,
        }
    )
    assert "bad" not in answer, answer
    told = answer["expect"]
    return {**case, **{name: told[name] for name in ("describe", "topics", "subtopologies")}}


def _complete(operation: dict[str, Any]) -> dict[str, Any]:
    complete = {**_FUNCTIONS.get(operation["op"], {}), **operation}
    if operation.get("key") is True:
        # It has a function for the key, whatever that is.
        complete["key"] = "k"
    if "branches" in operation:
        complete["branches"] = [{"predicate": "v|not_null", **b} for b in operation["branches"]]
    return complete


RECORDINGS = (
    Recording(UNIT / "assignment" / "high_availability_4_3_1.jsonl", assignments),
    Recording(UNIT / "assignment" / "rack_aware_4_3_1.jsonl", assignments),
    Recording(UNIT / "assignment" / "kafka_streams_4_3_1.json", wire_formats),
    Recording(UNIT / "java_priority_queue.json", polls),
    Recording(UNIT / "metrics" / "kafka_streams_4_3_1.jsonl", metrics),
    Recording(UNIT / "subscriptions" / "decaton_9_5_0.json", decaton_tasks),
    Recording(UNIT / "topology" / "kafka_streams_4_3.json", topologies),
)


def main(recordings: Iterable[Recording] = RECORDINGS) -> None:
    """Record all of them anew."""
    for recording in recordings:
        recording.path.write_text(recording.again())


if __name__ == "__main__":
    main()
