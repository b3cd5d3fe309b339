"""A running application answers as one of Kafka Streams on the same input.

The recorded scenarios (tests/conformance/queries) that need several partitions, a life of their
own, or a second instance. `tests/conformance/test_queries.py` has the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance.queries.application import topology
from conformance.queries.bench import ask
from conformance.queries.comparing import Fed, difference, due, moments
from conformance.queries.recording import recorded
from conformance.queries.scenarios import Scenario, Step
from pyspark.sql import SparkSession
from support.broker.records import Places, Sent
from support.broker.topics import unique
from support.running.applications import processed
from support.waiting import wait_for

from millstream import KafkaStreams, QueryableStoreTypes, StreamsConfig
from millstream.testing import EmbeddedKafka

RECORDED = {scenario["name"]: scenario for scenario in recorded()}
_WAIT_S = 60
#: A standby may be that far behind.
_FOLLOWED_S = 10


class Run:
    """A scenario that is lived through.

    Args:
        scenario: the scenario.
        kafka: the broker.
        spark: where its threads run.
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
        self._fed = Fed()
        self._places = Places(kafka.bootstrap_servers)
        topics = {"in", *(table["topic"] for table in scenario["tables"])}
        self._places.create({f"{self._prefix}{t}": scenario["partitions"] for t in topics})

    def differences(self) -> list[str]:
        """All that was said which should not have been."""
        return [wrong for moment in moments(self._scenario) for wrong in self._lived(moment)]

    def _lived(self, moment: list[Step]) -> Iterator[str]:
        for step in moment:
            if step["do"] != "ask":
                self._take(step)
                self._fed.take(step, self._scenario["partitions"])
            elif wrong := self._wrong(step, due(step, moment)):
                yield f"{ {each: step[each] for each in step if each != 'answer'} }: {wrong}"

    def _wrong(self, step: Step, theirs: Any) -> str | None:
        wrong: str | None = None

        def is_right() -> bool:
            nonlocal wrong
            ours = ask(self._at(step), step, self._prefix)
            wrong = difference(step, theirs, ours, self._fed)
            return wrong is None

        if step.get("instance") != "standby":
            is_right()
        else:
            with suppress(AssertionError):
                wait_for(is_right, _FOLLOWED_S, "the standby says so")
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
                self._wait(self._is_committed, "all is committed")

    def _is_committed(self) -> bool:
        return self._places.lag(self._name, [f"{self._prefix}in"]) == 0

    def _made(self, step: Step) -> KafkaStreams:
        config = StreamsConfig(
            application_id=self._name,
            bootstrap_servers=self._kafka.bootstrap_servers,
            state_dir=str(self._folder / step.get("instance", "one")),
            commit_interval_ms=3_600_000,
            # The times of the records are long gone, and brokers delete what is old.
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
        """The instance that has active tasks, or the one that has nothing but standbys."""
        for streams in self._instances.values():
            if streams.state.name == "RUNNING":
                threads = streams.metadata_for_local_threads()
                works = any(each.active_tasks for each in threads)
                follows = any(each.standby_tasks for each in threads)
                if works if active else follows and not works:
                    return streams
        return None

    def _settle(self) -> None:
        """Wait until whoever was started runs, and has what is its part."""
        alive = [s for s in self._instances.values() if s.state.name not in _AT_REST]
        for streams in alive:
            streams.wait_for_state("RUNNING", timedelta(seconds=_WAIT_S))
        if alive:
            self._wait(lambda: self._having(active=True) is not None, "one has tasks")
        if len(alive) > 1:
            self._wait(lambda: self._having(active=False) is not None, "one follows")

    def _write(self, records: list[Step]) -> None:
        tables = {t["topic"]: t["name"] for t in self._scenario["tables"] if _is_global(t)}
        sent = [
            Sent(
                f"{self._prefix}{record['topic']}",
                record["partition"],
                record.get("key", "-"),
                record["value"],
                record["time"],
            )
            for record in records
        ]
        if records[0]["topic"] in tables:
            # Several partitions of it may be read in any order.
            for record, each in zip(records, sent, strict=True):
                self._places.write([each])
                self._wait_global(tables[record["topic"]], record["key"], record["value"])
            return
        self._places.write(sent)
        self._processed += len(sent)
        self._wait(lambda: self._processed_now() >= self._processed, "all is processed")

    def _wait_global(self, store: str, key: str, value: str) -> None:
        view = self._instances["one"].store(store, QueryableStoreTypes.key_value())
        self._wait(lambda: view.get(key) == value, f"{store} has {key}")

    def _processed_now(self) -> int:
        alive = [s for s in self._instances.values() if s.state.name == "RUNNING"]
        return int(sum(map(processed, alive)))

    def _wait(self, condition: Any, what: str) -> None:
        wait_for(condition, _WAIT_S, what)

    def close(self) -> None:
        """Close what still runs."""
        for streams in self._instances.values():
            assert streams.close(timedelta(seconds=_WAIT_S))


_AT_REST = ("CREATED", "NOT_RUNNING", "ERROR")


def _is_global(table: Step) -> bool:
    return bool(table["kind"].startswith("global"))


@contextmanager
def lived(name: str, kafka: EmbeddedKafka, spark: SparkSession, folder: Path) -> Iterator[Run]:
    """A scenario, whose instances are closed at the end."""
    run = Run(RECORDED[name], kafka, spark, folder)
    try:
        yield run
    finally:
        run.close()


# Like Kafka Streams' users, we have no positions in changelogs, as in the scenario `vectors`.
@pytest.mark.parametrize("name", ["partitions", "life", "standby"])
def test_an_application_answers_as_one_of_kafka_streams(
    name: str, kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: over partitions, before and after its life, and as two of which one follows."""
    with lived(name, kafka, spark, tmp_path) as run:
        wrong = run.differences()
    assert not wrong, "\n".join(wrong)
