"""Two instances of one application with a standby each: state is where it is needed, beforehand."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.scripts import Script
from support.topics import committed_lag
from support.waiting import wait_for
from support.word_count import WordCount

from millstream.testing import EmbeddedKafka

DRIVER = """
import json, sys, threading, time
from millstream import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING

BOOTSTRAP, NAME, STATE, STANDBYS = sys.argv[1:]


class Restored:
    def on_restore_start(self, place, store, start, end):
        print("restoring", json.dumps([place.partition, start, end]), flush=True)

    def on_batch_restored(self, place, store, end, count): ...

    def on_restore_end(self, place, store, total):
        print("restored", json.dumps([place.partition, total]), flush=True)


class Copied:
    def on_update_start(self, place, store, start): ...

    def on_batch_loaded(self, place, store, task_id, batch_end, count, end):
        print("copied", json.dumps([place.partition, batch_end, count]), flush=True)

    def on_update_suspended(self, place, store, offset, end, reason):
        print("suspended", json.dumps([place.partition, reason]), flush=True)


def tell(streams):
    last = None
    while True:
        threads = streams.metadata_for_local_threads()
        told = json.dumps({
            "state": streams.state.name,
            "active": sorted(task.task_id for each in threads for task in each.active_tasks),
            "standby": sorted(task.task_id for each in threads for task in each.standby_tasks),
        })
        if told != last:
            print("now", told, flush=True)
            last = told
        time.sleep(0.1)


def main():
    builder = StreamsBuilder()
    (
        builder.stream(f"{NAME}-lines", key=STRING, value=STRING)
        .flat_map_values(lambda line: line.split())
        .group_by(lambda _, word: word, key=STRING, value=STRING)
        .count(store=Materialized("counts", key=STRING, value=LONG, caching=False))
        .to_stream()
        .to(f"{NAME}-counts", key=STRING, value=LONG)
    )
    config = StreamsConfig(
        application_id=NAME,
        bootstrap_servers=BOOTSTRAP,
        state_dir=STATE,
        num_standby_replicas=int(STANDBYS),
        commit_interval_ms=200,
        consumer={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    )
    streams = KafkaStreams(builder.build(), config)
    streams.set_global_state_restore_listener(Restored())
    streams.set_standby_update_listener(Copied())
    threading.Thread(target=tell, args=(streams,), daemon=True).start()
    streams.run()


if __name__ == "__main__":
    main()
"""


class Instances:
    def __init__(self, kafka: EmbeddedKafka, folder: Path, standbys: int) -> None:
        self.application = WordCount(kafka, folder)
        self._folder = folder
        self._standbys = standbys
        self._path = folder / "driver.py"
        self._path.write_text(DRIVER)

    @contextmanager
    def start(self, name: str) -> Iterator[Script]:
        application = self.application
        state = str(self._folder / name)
        arguments = (application.bootstrap, application.application_id, state, str(self._standbys))
        with Script(self._path, *arguments, home=self._folder / f"run-{name}") as script:
            yield script

    @property
    def lag(self) -> int:
        application = self.application
        return committed_lag(application.bootstrap, application.application_id, application.lines)


def now(script: Script) -> dict[str, list[str]]:
    assert script.is_running, script.errors
    told = [line for line in script.lines if line.startswith("now ")]
    return dict(json.loads(told[-1].removeprefix("now "))) if told else {}


def told(script: Script, what: str) -> list[list[int]]:
    start = f"{what} "
    return [json.loads(line.removeprefix(start)) for line in script.lines if line.startswith(start)]


def last_copied(script: Script, number: int) -> int:
    """The last offset of a changelog partition that a standby has read."""
    return max((last for place, last, _ in told(script, "copied") if place == number), default=-1)


def end_of(application: WordCount, number: int) -> int:
    """Where a changelog partition ends."""
    reader = Consumer({"bootstrap.servers": application.bootstrap, "group.id": "ends"})
    try:
        place = TopicPartition(application.changelog_topic, number)
        return int(reader.get_watermark_offsets(place, timeout=30)[1])
    finally:
        reader.close()


COUNTING = [f"1_{number}" for number in range(4)]


def counting(tasks: list[str]) -> list[str]:
    return [task for task in tasks if task.startswith("1_")]


def shared(one: Script, other: Script) -> bool:
    """Both run, and each counts the half."""
    states = now(one), now(other)
    active = [counting(state.get("active", [])) for state in states]
    return all(state.get("state") == "RUNNING" for state in states) and (
        len(active[0]) == len(active[1]) == 2 and sorted(active[0] + active[1]) == COUNTING
    )


def mirrored(one: Script, other: Script) -> bool:
    """Each has copies of what the other one counts."""
    return shared(one, other) and all(
        counting(now(script)["active"]) == counting(now(beside)["standby"])
        for script, beside in ((one, other), (other, one))
    )


@pytest.mark.parametrize("standbys", [1, 0])
def test_when_an_instance_is_killed_its_standbys_go_on_at_once(
    kafka: EmbeddedKafka, tmp_path: Path, standbys: int
) -> None:
    """Goal: with a standby, taking over restores only what the copy has not read yet, nothing when
    it was idle; without one everything is restored. The counts end right either way.

    Method: both instances count; SIGKILL to one, with all its processes, when the copies have read
    everything; the restore listener of the other one says how many records it restored.
    """
    instances = Instances(kafka, tmp_path, standbys)
    application = instances.application
    application.write_lines(1_000)
    with ExitStack() as running:
        one = running.enter_context(instances.start("one"))
        wait_for(lambda: counting(now(one).get("active", [])) == COUNTING, 120, "one has all")
        # Only now, so that nothing of what the first one goes on to count was ever here.
        other = running.enter_context(instances.start("other"))
        ready = mirrored if standbys else shared
        wait_for(lambda: ready(one, other), 120, "the work is shared")
        application.write_lines(500)
        wait_for(application.is_exact, 60, "counted together")
        wait_for(lambda: instances.lag == 0, 60, "committed")
        lost = [int(task.partition("_")[2]) for task in counting(now(one)["active"])]
        ends = {number: end_of(application, number) for number in lost}
        if standbys:
            wait_for(
                lambda: all(last_copied(other, number) == ends[number] - 1 for number in lost),
                60,
                "the copies have read everything",
            )
        before, suspended = len(told(other, "restored")), len(told(other, "suspended"))
        one.signal_group(signal.SIGKILL)
        wait_for(
            lambda: counting(now(other)["active"]) == COUNTING and now(other)["state"] == "RUNNING",
            60,
            "the other one counts everything",
        )
        restored = dict(told(other, "restored")[before:])
        assert restored == (dict.fromkeys(lost, 0) if standbys else ends)
        if standbys:
            ended = sorted(told(other, "suspended")[suspended:])
            assert ended == [[number, "PROMOTED"] for number in lost]
        application.write_lines(500)
        wait_for(lambda: instances.lag == 0, 60, "committed")
        wait_for(application.covers_expected, 60, "no count is below the exact one")
        other.signal(signal.SIGINT)
        assert other.wait_ended(30) == 0
