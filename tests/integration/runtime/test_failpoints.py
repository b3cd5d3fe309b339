"""A stream thread is killed between any two steps of a commit: nothing is lost, and what was not
committed, nothing else, is done again."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.machine.scripts import Script
from support.running import lone_thread
from support.running.failpoints import Armed, Failpoint, Hit, hit
from support.running.topologies.identified import Account, Identified
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

IDS = 100
#: Two stores in one sub-topology, so that a kill can come between the writes of the one and the
#: other.
STORES = ("ids", "copies")


class Doomed:
    """An application whose only thread is killed."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self._folder = folder
        self.state = folder / "state"
        self.application = Identified(kafka, folder, partitions=1, stores=STORES)
        self.application.write(IDS)

    def kill(self, place: str, times: int) -> Hit:
        """Run a thread until it comes to a place for the nth time, where it must kill itself."""
        note = self._folder / f"{place.replace(' ', '-')}.hit"
        with Script(
            Path(lone_thread.__file__),
            *self._arguments(),
            *(json.dumps(STORES), place, str(times), str(note)),
            home=self._folder / "doomed",
            imports=Path(lone_thread.__file__).parents[2],
        ) as script:

            def has_ended() -> bool:
                # Input goes on all the while: there are as many commits as it takes.
                self.application.write(5)
                return not script.is_running

            wait_for(has_ended, 60, "it comes to the failpoint")
            exit_code = script.wait_ended(10)
            assert exit_code == -signal.SIGKILL, script.errors
        told = hit(note)
        assert told.place == place
        return told

    def finish(self, more: int = 0) -> tuple[Account, int]:
        """Let another thread do the rest, and more; what became of the ids, and how many records
        were restored."""
        bootstrap, name, _ = self._arguments()
        with lone_thread.running(bootstrap, name, self.state, STORES) as control:
            self.application.write(more)
            self.application.wait_committed()
            return self.application.account(), control.restored

    def _arguments(self) -> tuple[str, str, str]:
        return self.application.bootstrap, self.application.application_id, str(self.state)


def check_nothing_lost(account: Account) -> None:
    assert not account.lost
    assert not account.untold


@pytest.mark.parametrize(
    ("place", "times"),
    [
        # What was sent may have been written, or not.
        pytest.param("before the caches are flushed", 5, id="before-caches"),
        pytest.param("while the caches are flushed", 4, id="within-caches"),
        pytest.param("before the producer is flushed", 3, id="before-flush"),
    ],
)
def test_before_the_flush_nothing_is_lost(
    kafka: EmbeddedKafka, tmp_path: Path, place: str, times: int
) -> None:
    """Hunts for offsets that are committed before what their records caused is written."""
    doomed = Doomed(kafka, tmp_path)
    killed = doomed.kill(place, times)
    account, _ = doomed.finish()
    check_nothing_lost(account)
    assert account.repeated <= killed.uncommitted


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(
    "place", ["after the producer is flushed", "before the offsets are committed"]
)
def test_between_flush_and_offsets_work_is_repeated(
    kafka: EmbeddedKafka, tmp_path: Path, place: str, times: int
) -> None:
    """Goal: everything is written and nothing is committed, so some of it is there twice: not more
    than was read since the last commit, and none is lost."""
    doomed = Doomed(kafka, tmp_path)
    killed = doomed.kill(place, times)
    account, _ = doomed.finish()
    check_nothing_lost(account)
    assert 0 < account.repeated <= killed.uncommitted


@pytest.mark.parametrize(
    ("place", "times"),
    [
        pytest.param("after the offsets are committed", 3, id="after-offsets"),
        pytest.param("before a store is written", 5, id="before-first-store"),
        pytest.param("after a store is written", 5, id="between-stores"),
        pytest.param("after a store is written", 6, id="after-last-store"),
    ],
)
def test_after_the_offsets_nothing_is_repeated(
    kafka: EmbeddedKafka, tmp_path: Path, place: str, times: int
) -> None:
    """Goal: what stores had not written yet comes back from their changelogs, each from where it
    stands, and nothing is done twice but what was read while the group had not answered."""
    doomed = Doomed(kafka, tmp_path)
    killed = doomed.kill(place, times)
    account, restored = doomed.finish()
    check_nothing_lost(account)
    assert account.repeated <= killed.uncommitted
    is_written = place == "after a store is written" and times == 6
    # What was read meanwhile may be logged already.
    assert (restored == 0) == is_written or (is_written and killed.uncommitted > 0)


@pytest.mark.parametrize("place", ["before records are restored", "after records are restored"])
def test_a_kill_during_a_restoration_costs_nothing(
    kafka: EmbeddedKafka, tmp_path: Path, place: str
) -> None:
    """Goal: state that was lost with its machine is restored by the one that comes after the one
    that was killed over it, from where that one was."""
    doomed = Doomed(kafka, tmp_path)
    done, _ = doomed.finish()
    check_nothing_lost(done)
    shutil.rmtree(doomed.state)
    doomed.kill(place, 1)
    account, restored = doomed.finish(more=IDS)
    check_nothing_lost(account)
    assert account.repeated == 0
    assert restored > 0


def test_a_worker_of_spark_is_killed_between_flush_and_offsets(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: what the worker had written and not committed is repeated by those that take its tasks
    over, and nothing else."""
    note = tmp_path / "hit"
    armed = Armed(Failpoint("after the producer is flushed", 3, note))
    application = Identified(kafka, tmp_path, mapper=armed)

    def is_hit() -> bool:
        application.write(20)
        return note.exists()

    with application.streams(spark) as streams:
        wait_for(is_hit, 90, "a worker came to the failpoint")
        application.may_repeat = hit(note).uncommitted
        application.write(200)
        account = application.check(90)
        assert account.repeated > 0
        assert streams.error is None
