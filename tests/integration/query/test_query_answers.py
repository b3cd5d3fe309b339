"""A running application returns the same answers as Kafka Streams for the same input.

These are the recorded scenarios (tests/conformance/queries) that need several partitions, starts
and stops, or a second instance. `tests/conformance/test_queries.py` has the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance.queries.application import topology
from conformance.queries.bench import answer_step
from conformance.queries.comparing import ProcessedOffsets, difference, expected_answer, step_groups
from conformance.queries.recording import recorded_scenarios
from conformance.queries.scenarios import Scenario, Step
from pyspark.sql import SparkSession
from support.broker.topics import BrokerTopics, InputRecord, unique
from support.running.applications import processed
from support.waiting import wait_for

from millstream import KafkaStreams, QueryableStoreTypes, StreamsConfig
from millstream.testing import EmbeddedKafka

RECORDED = {scenario["name"]: scenario for scenario in recorded_scenarios()}
_WAIT_S = 60
#: The maximum lag of a standby.
_STANDBY_LAG_S = 10


class Run:
    """The execution of a scenario.

    Args:
        scenario: the scenario.
        kafka: the broker.
        spark: the session.
        folder: for its state.
    """

    def __init__(
        self, scenario: Scenario, kafka: EmbeddedKafka, spark: SparkSession, folder: Path
    ) -> None:
        self._scenario = scenario
        self._kafka = kafka
        self._spark = spark
        self._folder = folder
        self._name = unique(f"queries-{scenario['name']}")
        self._prefix = f"{self._name}."
        self._instances: dict[str, KafkaStreams] = {}
        self._processed = 0
        self._processed_offsets = ProcessedOffsets()
        self._places = BrokerTopics(kafka.bootstrap_servers)
        topics = {"in", *(table["topic"] for table in scenario["tables"])}
        self._places.create({f"{self._prefix}{t}": scenario["partitions"] for t in topics})

    def differences(self) -> list[str]:
        """The unexpected answers."""
        return [wrong for group in step_groups(self._scenario) for wrong in self._execute(group)]

    def _execute(self, group: list[Step]) -> Iterator[str]:
        for step in group:
            if step["do"] != "ask":
                self._take(step)
                self._processed_offsets.add(step, self._scenario["partitions"])
            elif wrong := self._difference(step, expected_answer(step, group)):
                yield f"{ {each: step[each] for each in step if each != 'answer'} }: {wrong}"

    def _difference(self, step: Step, expected: Any) -> str | None:
        wrong: str | None = None

        def is_right() -> bool:
            nonlocal wrong
            actual = answer_step(self._at(step), step, self._prefix)
            wrong = difference(step, expected, actual, self._processed_offsets)
            return wrong is None

        if step.get("instance") != "standby":
            is_right()
        else:
            with suppress(AssertionError):
                wait_for(is_right, _STANDBY_LAG_S, "the standby returns this answer")
        return wrong

    def _take(self, step: Step) -> None:
        match step["do"]:
            case "make":
                self._instances[step.get("instance", "one")] = self._made(step)
            case "start":
                self._at(step).start()
                self._settle()
            case "close":
                assert self._at(step).close(timedelta(seconds=_WAIT_S), leave_group=True)
                self._settle()
                self._processed = self._processed_now()
            case "wipe":
                self._at(step).clean_up()
            case "feed":
                self._write(step["records"])
            case "commit":
                value = '[["commit"]]'
                record = {"topic": "in", "value": value, "time": self._scenario["commit_time"]}
                count = self._scenario["partitions"]
                self._write([{**record, "partition": number} for number in range(count)])
                self._wait(self._is_committed, "everything is committed")

    def _is_committed(self) -> bool:
        return self._places.lag(self._name, [f"{self._prefix}in"]) == 0

    def _made(self, step: Step) -> KafkaStreams:
        config = StreamsConfig(
            application_id=self._name,
            bootstrap_servers=self._kafka.bootstrap_servers,
            state_dir=str(self._folder / step.get("instance", "one")),
            commit_interval_ms=3_600_000,
            # The records' timestamps are in the distant past, and brokers delete old records.
            windowstore_changelog_additional_retention_ms=4_000_000_000_000,
            num_standby_replicas=self._scenario["standbys"],
        )
        return KafkaStreams(topology(self._scenario, self._prefix), config, self._spark)

    def _at(self, step: Step) -> KafkaStreams:
        name = step.get("instance", "one")
        if name in self._instances:
            return self._instances[name]
        found = self._having(active=name == "active")
        assert found is not None, name
        return found

    def _having(self, *, active: bool) -> KafkaStreams | None:
        """The instance with active tasks, or the one with only standbys."""
        for streams in self._instances.values():
            if streams.state.name == "RUNNING":
                threads = streams.metadata_for_local_threads()
                works = any(each.active_tasks for each in threads)
                follows = any(each.standby_tasks for each in threads)
                if works if active else follows and not works:
                    return streams
        return None

    def _settle(self) -> None:
        """Wait until all started instances are running with their share of the tasks."""
        alive = [s for s in self._instances.values() if s.state.name not in _AT_REST]
        for streams in alive:
            streams.wait_for_state("RUNNING", timedelta(seconds=_WAIT_S))
        if alive:
            self._wait(lambda: self._having(active=True) is not None, "one instance has tasks")
        if len(alive) > 1:
            self._wait(lambda: self._having(active=False) is not None, "one instance has standbys")

    def _write(self, records: list[Step]) -> None:
        tables = {t["topic"]: t["name"] for t in self._scenario["tables"] if _is_global(t)}
        sent = [
            InputRecord(
                f"{self._prefix}{record['topic']}",
                record["partition"],
                record.get("key", "-"),
                record["value"],
                record["time"],
            )
            for record in records
        ]
        if records[0]["topic"] in tables:
            # The partitions of a topic may be read in any order.
            for record, each in zip(records, sent, strict=True):
                self._places.write([each])
                self._wait_global(tables[record["topic"]], record["key"], record["value"])
            return
        self._places.write(sent)
        self._processed += len(sent)
        self._wait(lambda: self._processed_now() >= self._processed, "everything is processed")

    def _wait_global(self, store: str, key: str, value: str) -> None:
        view = self._instances["one"].store(store, QueryableStoreTypes.key_value())
        self._wait(lambda: view.get(key) == value, f"{store} has {key}")

    def _processed_now(self) -> int:
        alive = [s for s in self._instances.values() if s.state.name == "RUNNING"]
        return int(sum(map(processed, alive)))

    def _wait(self, condition: Any, what: str) -> None:
        wait_for(condition, _WAIT_S, what)

    def close(self) -> None:
        """Close all running instances."""
        for streams in self._instances.values():
            assert streams.close(timedelta(seconds=_WAIT_S))


_AT_REST = ("CREATED", "NOT_RUNNING", "ERROR")


def _is_global(table: Step) -> bool:
    return bool(table["kind"].startswith("global"))


@contextmanager
def run_scenario(
    name: str, kafka: EmbeddedKafka, spark: SparkSession, folder: Path
) -> Iterator[Run]:
    """A scenario, whose instances are closed at the end."""
    run = Run(RECORDED[name], kafka, spark, folder)
    try:
        yield run
    finally:
        run.close()


# The scenario `vectors` is left out: its changelogs contain positions, which Millstream does not
# write, and users of Kafka Streams cannot enable.
@pytest.mark.parametrize(
    "name",
    [
        "partitions",
        *(pytest.param(name, marks=pytest.mark.extended) for name in ("life", "standby")),
    ],
)
def test_answers_equal_those_of_kafka_streams(
    name: str, kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: with several partitions, before start and after close, and with a standby instance."""
    with run_scenario(name, kafka, spark, tmp_path) as run:
        wrong = run.differences()
    assert not wrong, "\n".join(wrong)
