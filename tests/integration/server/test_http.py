"""Goal: a running application gives the same answers over HTTP as in Python, on any of its
instances.

Method: counts of words on a broker and Spark; two instances in one process share the partitions.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import keyed
from support.http_client import HttpClient
from support.machine.ports import free_port
from support.running.applications import Application
from support.waiting import wait_for

from millstream import (
    ClientState,
    InvalidStateStoreError,
    KafkaStreams,
    QueryableStoreTypes,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

_KEYS = [f"k/{number:02} ä" for number in range(40)]
_EVENTS = [(_KEYS[number * 7 % 40], "x", 1_000 + number * 500) for number in range(400)]
_COUNTS = Counter(key for key, _, _ in _EVENTS)
_TOKEN = "the-token-of-both"


def counting(name: str) -> Topology:
    """Counts by key, in total and by minute."""
    builder = StreamsBuilder()
    grouped = builder.stream(f"{name}-in", key=STRING, value=STRING).group_by_key()
    grouped.count(store="counts")
    # The grace period extends the retention of the windows.
    minutes = TimeWindows(timedelta(minutes=1), grace=timedelta(hours=1))
    grouped.windowed_by(minutes).count(store="minutes")
    return builder.build()


class Instance(NamedTuple):
    """An instance and its HTTP client."""

    streams: KafkaStreams
    http: HttpClient
    folder: Path


@pytest.fixture(scope="module")
def instances(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Instance]]:
    """Two instances that share three partitions, with all input counted."""
    application = Application(kafka, counting, {"in": 3}, {})
    topic = application.topic("in")
    made: list[Instance] = []
    try:
        for number in range(2):
            folder = tmp_path_factory.mktemp(f"instance-{number}")
            port = free_port()
            # Both are on this machine, so the settings contain their addresses.
            streams = application.streams(
                spark,
                folder,
                num_stream_threads=1,
                server_port=port,
                server_token=_TOKEN,
                application_server=f"127.0.0.1:{port}",
            )
            streams.start()
            address = streams.server_address
            assert address is not None
            made.append(Instance(streams, HttpClient(address), folder / application.name))
        for one in made:
            wait_for(lambda: bool(tasks_of(one)), 60, "the tasks are shared")  # noqa: B023
        # Not earlier: these windows are in the distant past, so the broker would soon delete
        # changelog records that a moved task needs.
        application.places.write(
            keyed(topic, 3, key, value, timestamp) for key, value, timestamp in _EVENTS
        )
        for one in made:
            wait_for(lambda: has_counted(one), 60, "all is counted")  # noqa: B023
        yield made
    finally:
        for one in made:
            assert one.streams.close(timedelta(seconds=30))


def has_counted(instance: Instance) -> bool:
    """Whether an instance returns all counts, its own and the other's."""
    try:
        view = instance.streams.store("counts", QueryableStoreTypes.key_value())
        return instance.streams.state is ClientState.RUNNING and dict(view.all()) == _COUNTS
    except InvalidStateStoreError:
        # A rebalance is in progress.
        return False


def tasks_of(instance: Instance) -> list[str]:
    """The tasks that an instance processes."""
    threads = instance.streams.metadata_for_local_threads()
    return [task.task_id for each in threads for task in each.active_tasks]


@pytest.mark.extended
def test_every_instance_answers_for_all_partitions(instances: list[Instance]) -> None:
    """Keys, ranges and windows are the same on each instance, with the hosts of their
    partitions."""
    answers = []
    for one in instances:
        found = {key: one.http.get("stores", "counts", "keys", key) for key in _KEYS}
        assert {key: each["value"] for key, each in found.items()} == _COUNTS
        assert {key: each["key"] for key, each in found.items()} == {key: key for key in _KEYS}
        entries = one.http.pages("stores", "counts", "range", limit=7)
        assert {each["key"]: each["value"] for each in entries} == _COUNTS
        windows = one.http.pages("stores", "minutes", "windows", limit=7)
        assert sum(each["value"] for each in windows) == len(_EVENTS)
        own = one.http.pages("stores", "minutes", "windows", _KEYS[0], from_=60_000)
        assert own == [
            each for each in windows if each["key"] == _KEYS[0] and each["window_start"] >= 60_000
        ]
        answers.append((found, entries, windows))
    assert answers[0] == answers[1]
    hosts = {f"{one.http.address.url.removeprefix('http://')}" for one in instances}
    assert {each["host"] for each in answers[0][0].values()} == hosts
    assert instances[0].http.request("/stores/counts/keys/nobody")[0] == 404


def test_metadata_contain_the_owners_of_partitions(instances: list[Instance]) -> None:
    """The group's metadata contain the servers' own addresses."""
    for one in instances:
        known = one.http.get("metadata", "instances")
        assert {f"http://{each['host']}:{each['port']}" for each in known} == {
            each.http.address.url for each in instances
        }
        assert one.http.get("metadata", "stores", "counts") == known
        place = one.http.get("metadata", "stores", "counts", "keys", _KEYS[0])
        found = one.http.get("stores", "counts", "keys", _KEYS[0])
        assert place["partition"] == found["partition"]
        assert f"{place['active']['host']}:{place['active']['port']}" == found["host"]
        (thread,) = one.http.get("metadata", "threads")
        assert [each["task_id"] for each in thread["active_tasks"]] == tasks_of(one)
        lags = one.http.get("metadata", "lags")
        assert {each["partition"] for each in lags} == {
            int(task.split("_")[1]) for task in tasks_of(one)
        }
        assert {each["lag"] for each in lags} == {0}


def test_probes_metrics_and_console(instances: list[Instance]) -> None:
    """They belong to the instance that serves them."""
    for one in instances:
        assert one.http.request("/health/ready", token=None) == (200, {"status": "ok"})
        assert one.http.get("health", "live")["state"] == "RUNNING"
        text = one.http.get("metrics").decode()
        assert "kafka_streams_stream_thread_metrics_process_total{" in text
        state = one.http.get("console", "state")
        assert state["application"]["state"] == "RUNNING"
        assert [each["name"] for each in state["threads"]] == [
            each.thread_name for each in one.streams.metadata_for_local_threads()
        ]


def test_a_server_ends_with_its_application(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: only this user can read the generated token, and nothing is left behind."""
    application = Application(kafka, counting, {"in": 1}, {})
    before = set(threading.enumerate())
    with application.running(spark, tmp_path, num_stream_threads=1, server_port=0) as (streams, _):
        address = streams.server_address
        assert address is not None
        file = tmp_path / application.name / "server.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        content = json.loads(file.read_text())
        assert content == {"url": address.url, "token": address.token, "pid": os.getpid()}
        client = HttpClient(address)
        assert client.get("stores", "counts", "range")["entries"] == []
        listener = client.stream("/console/events")
        assert listener.readline() == b"event: state\n"
    with listener:
        listener.read()
    assert not file.exists()

    def remaining() -> list[str]:
        ours = ("millstream-server", "millstream-http")
        return [
            each.name for each in {*threading.enumerate()} - before if each.name.startswith(ours)
        ]

    # Threads of the pool end later.
    wait_for(lambda: not remaining(), 10, lambda: f"its threads have ended: {remaining()}")
    with pytest.raises(OSError, match="refused"):
        client.request("/health/live")
