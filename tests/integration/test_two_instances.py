"""Two instances of one application, each a driver process with a Spark session of its own."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from support.leftovers import runs
from support.scripts import Script
from support.topics import committed_lag
from support.waiting import wait_for
from support.word_count import RUNNING, WordCount

from millstream.testing import EmbeddedKafka

DRIVER = """
import json, sys, time
from millstream import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING

BOOTSTRAP, NAME, STATE = sys.argv[1:]


def tell(streams):
    last = None
    while True:
        threads = streams.metadata_for_local_threads()
        told = json.dumps({
            "state": streams.state.name,
            "tasks": sorted(task.task_id for each in threads for task in each.active_tasks),
            "pids": [each.pid for each in threads if each.pid],
        })
        if told != last:
            print("now", told, flush=True)
            last = told
        time.sleep(0.1)


def main():
    import threading

    builder = StreamsBuilder()
    (
        builder.stream(f"{NAME}-lines", key=STRING, value=STRING)
        .flat_map_values(lambda line: line.split())
        .group_by(lambda _, word: word, key=STRING, value=STRING)
        .count(store=Materialized("counts", key=STRING, value=LONG))
        .to_stream()
        .to(f"{NAME}-counts", key=STRING, value=LONG)
    )
    config = StreamsConfig(
        application_id=NAME,
        bootstrap_servers=BOOTSTRAP,
        state_dir=STATE,
        commit_interval_ms=200,
        consumer={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    )
    streams = KafkaStreams(builder.build(), config)
    threading.Thread(target=tell, args=(streams,), daemon=True).start()
    streams.run()


if __name__ == "__main__":
    main()
"""


class Instances:
    """The driver script, and the application that it runs."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.application = WordCount(kafka, folder)
        self._folder = folder
        self._path = folder / "driver.py"
        self._path.write_text(DRIVER)
        self._started = 0

    def start(self, state: str) -> Script:
        self._started += 1
        application = self.application
        arguments = (application.bootstrap, application.application_id, str(self._folder / state))
        return Script(self._path, *arguments, home=self._folder / f"run-{self._started}")

    @property
    def lag(self) -> int:
        application = self.application
        return committed_lag(application.bootstrap, application.application_id, application.lines)


def tasks_of(script: Script) -> list[str]:
    """The tasks that an instance runs, once it is RUNNING."""
    now = _now(script)
    return list(now["tasks"]) if now.get("state") == "RUNNING" else []


def worker_of(script: Script) -> int:
    """The process of its one stream thread."""
    (pid,) = _now(script)["pids"]
    return int(pid)


def _now(script: Script) -> dict[str, list[str]]:
    assert script.is_running, script.errors
    told = [line for line in script.lines if line.startswith("now ")]
    return dict(json.loads(told[-1].removeprefix("now "))) if told else {}


def wait_shared(one: Script, other: Script) -> None:
    wait_for(
        lambda: (
            len(tasks_of(one)) == len(tasks_of(other)) == 4
            and set(tasks_of(one)).isdisjoint(tasks_of(other))
        ),
        120,
        f"the tasks are shared: {one.lines[-3:]}, {other.lines[-3:]}",
    )


@contextmanager
def lines_arriving(application: WordCount) -> Iterator[None]:
    """Input that goes on all the while."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            application.write_lines(20)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        stop.set()
        writing.join(60)


def wait_complete(instances: Instances) -> None:
    """Everything is processed, and no count is too low."""
    wait_for(lambda: instances.lag == 0, 90, "all lines are committed")
    wait_for(instances.application.covers_expected, 60, "no count is below the exact one")


def test_a_driver_that_is_killed_is_replaced_by_the_other(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Goal: instances share the work; when one is cut off the other does it all, losing nothing.

    Method: SIGKILL, first to the driver with all its processes, as when a machine fails; then, once
    it is back, to the driver alone, whose JVM and worker have to end by themselves. Input arrives
    all the while.
    """
    instances = Instances(kafka, tmp_path)
    application = instances.application
    application.write_lines(1_000)
    every_task = [f"{part}_{number}" for part in (0, 1) for number in range(4)]
    with instances.start("other") as other, instances.start("one") as one:
        wait_shared(one, other)
        wait_for(application.is_exact, 60, "counted together")
        with lines_arriving(application):
            worker = worker_of(one)
            one.signal_group(signal.SIGKILL)
            wait_for(lambda: not runs(worker), 30, "it is gone")
            wait_for(lambda: tasks_of(other) == every_task, 60, "the other has everything")
        wait_complete(instances)

        with instances.start("one") as one_again:
            wait_shared(one_again, other)
            with lines_arriving(application):
                worker = worker_of(one_again)
                os.kill(one_again.child.pid, signal.SIGKILL)
                wait_for(lambda: tasks_of(other) == every_task, 60, "the other has everything")
                wait_for(lambda: not runs(worker), 45, "the orphaned worker has ended")
                wait_for(lambda: not one_again.group_exists(), 30, "so has everything else")
            wait_complete(instances)
            assert tasks_of(other) == every_task

        other.signal(signal.SIGINT)
        assert other.wait_ended(30) == 0
        name = application.application_id
        begun, runs_now, closing, ended = (
            line for line in other.errors.splitlines() if line.startswith("millstream: ")
        )
        assert f"starts {name}: " in begun
        assert f"{name} is RUNNING after " in runs_now
        assert "on Spark local[" in runs_now
        assert "task" in runs_now
        assert closing == f"millstream: SIGINT: {name} closes; once more ends it at once"
        assert ended == f"millstream: {name} stopped, everything committed"


def test_two_drivers_cannot_share_a_state_directory(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the second one is told at once to choose another; the first one is not disturbed."""
    instances = Instances(kafka, tmp_path)
    state = tmp_path / "state"
    with instances.application.streams(spark, state_dir=str(state)) as first:
        with instances.start("state") as second:
            assert second.wait_ended(30) == 1
            last = second.errors.splitlines()[-1]
        first.wait_for_state("RUNNING", RUNNING)
        assert last.startswith("millstream.errors.LockError")
        assert str(state) in last
        assert f"process {os.getpid()}" in last
        assert "two settings of state.dir" in last
