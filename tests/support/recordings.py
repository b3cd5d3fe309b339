"""The fixtures recorded from Kafka Streams or Decaton, and how to record each again.

The recorders are the Java programs of tests/java and the oracle of the conformance tests. A fixture
contains its inputs; only the results are Kafka Streams'. Recording therefore reads the inputs from
the file and adds new results.
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

#: Arguments missing in the operations of recorded topologies, because no name or topic depends on
#: them.
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
    """A fixture that can be recorded again.

    Args:
        answer: computes the file's new text from its present text.
    """

    path: Path
    answer: Callable[[str], str]

    def record_again(self) -> str:
        """Compute the expected content of the file.

        Raises:
            OracleUnavailable: Java, its compiler or the jars of Kafka Streams are missing.
        """
        return self.answer(self.path.read_text())


def run_recorder(main: str, text: str = "") -> str:
    """Run a recorder of tests/java and return its output.

    Args:
        main: the full name of its class; the file is named after the class.

    Raises:
        OracleUnavailable: Java, its compiler or the jars of Kafka Streams are missing.
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
    """Groups with the assignors' results, one per line."""
    return run_recorder(
        "org.apache.kafka.streams.processor.internals.assignment.RecordAssignments", text
    )


def wire_formats(text: str) -> str:
    """Subscriptions and assignments in bytes; the recorder chooses their content."""
    bytes_of: dict[str, Any] = json.loads(run_recorder("RecordWireFormats"))
    produced_by = json.loads(text)["produced_by"]
    return json.dumps({"produced_by": produced_by, **bytes_of}, indent=1) + "\n"


def metrics(text: str) -> str:
    """The metrics of Kafka Streams, one per line; there is no input."""
    return run_recorder("RecordMetrics")


def polls(text: str) -> str:
    """Sequences of additions to a queue with the results of polls between them."""
    lines = (json.dumps(each, separators=(",", ":")) for each in json.loads(text))
    recorded = run_recorder("RecordPriorityQueue", "".join(f"{line}\n" for line in lines))
    return "[" + ",\n".join(recorded.splitlines()) + "]\n"


def decaton_tasks(text: str) -> str:
    """Tasks as serialized by Decaton, and bytes as deserialized by Decaton."""
    fixture: dict[str, Any] = json.loads(text)
    inputs = "".join("\t".join(case["ask"]) + "\n" for case in fixture["cases"])
    try:
        line = command(JAVA / "RecordDecatonTasks.java")
    except DecatonUnavailable as why:
        raise OracleUnavailable(str(why)) from why
    done = subprocess.run(
        line, input=inputs, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
    )
    answers = [answer.split("\t") for answer in done.stdout.splitlines()]
    cases = [
        {**case, "answer": answer} for case, answer in zip(fixture["cases"], answers, strict=True)
    ]
    results = ",\n".join(json.dumps(case) for case in cases)
    return f'{{"produced_by": {json.dumps(fixture["produced_by"])}, "cases": [\n{results}\n]}}\n'


def topologies(text: str) -> str:
    """DSL operations with the topologies that Kafka Streams builds from them."""
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
    expected = answer["expect"]
    return {**case, **{name: expected[name] for name in ("describe", "topics", "subtopologies")}}


def _complete(operation: dict[str, Any]) -> dict[str, Any]:
    complete = {**_FUNCTIONS.get(operation["op"], {}), **operation}
    if operation.get("key") is True:
        # The operation has a function for the key; which one does not matter.
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
    """Record all of them again."""
    for recording in recordings:
        recording.path.write_text(recording.record_again())


if __name__ == "__main__":
    main()
