"""A stream thread is killed between any two steps of a commit: no record is lost, and only
uncommitted work is repeated."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.machine.scripts import support_script
from support.running.failpoints import ArmingMapper, Failpoint, Hit, hit, identified_run
from support.running.topologies.identified import Account, Identified
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

IDS = 100
#: Two stores in one sub-topology, so that a kill can happen between their writes.
STORES = ("ids", "copies")


class KilledApplication:
    """An application whose only thread is killed."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self._folder = folder
        self.state = folder / "state"
        self.application = Identified(kafka, folder, partitions=1, stores=STORES)
        self.application.write(IDS)

    def kill(self, place: str, times: int) -> Hit:
        """Run a thread until it reaches a place for the nth time, and kills itself."""
        note = self._folder / f"{place.replace(' ', '-')}.hit"
        with support_script(
            "failpoints.py",
            *self._arguments(),
            *(json.dumps(STORES), place, str(times), str(note)),
            home=self._folder / "doomed",
        ) as script:

            def has_ended() -> bool:
                # There is continuous input, and therefore as many commits as necessary.
                self.application.write(5)
                return not script.is_running

            wait_for(has_ended, 60, "the thread reaches the failpoint")
            exit_code = script.wait_ended(10)
            assert exit_code == -signal.SIGKILL, script.errors
        details = hit(note)
        assert details.place == place
        return details

    def finish(self, more: int = 0) -> tuple[Account, int]:
        """Let another thread process the rest, and more; return the state of the ids, and the
        number of restored records."""
        bootstrap, name, _ = self._arguments()
        with identified_run(bootstrap, name, self.state, STORES) as run:
            self.application.write(more)
            self.application.wait_committed()
            return self.application.account(), run.control.restored

    def _arguments(self) -> tuple[str, str, str]:
        return self.application.bootstrap, self.application.application_id, str(self.state)


def check_nothing_lost(account: Account) -> None:
    assert not account.lost
    assert not account.never_output


@pytest.mark.parametrize(
    ("place", "times"),
    [
        # Records in flight may have been written, or not.
        pytest.param(
            "before the caches are flushed", 5, id="before-caches", marks=pytest.mark.extended
        ),
        pytest.param(
            "while the caches are flushed", 4, id="within-caches", marks=pytest.mark.extended
        ),
        pytest.param("before the producer is flushed", 3, id="before-flush"),
    ],
)
def test_kills_before_the_flush_lose_nothing(
    kafka: EmbeddedKafka, tmp_path: Path, place: str, times: int
) -> None:
    """Detects offsets that are committed before the output of their records is written."""
    killed_application = KilledApplication(kafka, tmp_path)
    killed = killed_application.kill(place, times)
    account, _ = killed_application.finish()
    check_nothing_lost(account)
    assert account.repeated <= killed.uncommitted


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.extended), 4])
@pytest.mark.parametrize(
    "place",
    [
        pytest.param("after the producer is flushed", marks=pytest.mark.extended),
        "before the offsets are committed",
    ],
)
def test_kills_between_flush_and_offsets_repeat_work(
    kafka: EmbeddedKafka, tmp_path: Path, place: str, times: int
) -> None:
    """Goal: everything is written and nothing is committed, so some records are duplicated: at
    most those read since the last commit; none is lost."""
    killed_application = KilledApplication(kafka, tmp_path)
    killed = killed_application.kill(place, times)
    account, _ = killed_application.finish()
    check_nothing_lost(account)
    assert 0 < account.repeated <= killed.uncommitted


@pytest.mark.parametrize(
    ("place", "times"),
    [
        pytest.param(
            "after the offsets are committed", 3, id="after-offsets", marks=pytest.mark.extended
        ),
        pytest.param(
            "before a store is written", 5, id="before-first-store", marks=pytest.mark.extended
        ),
        pytest.param("after a store is written", 5, id="between-stores"),
        pytest.param(
            "after a store is written", 6, id="after-last-store", marks=pytest.mark.extended
        ),
    ],
)
def test_kills_after_the_offsets_repeat_nothing(
    kafka: EmbeddedKafka, tmp_path: Path, place: str, times: int
) -> None:
    """Goal: writes missing in the stores are restored from their changelogs, and only records
    that were read while the commit was unanswered are repeated."""
    killed_application = KilledApplication(kafka, tmp_path)
    killed = killed_application.kill(place, times)
    account, restored = killed_application.finish()
    check_nothing_lost(account)
    assert account.repeated <= killed.uncommitted
    is_written = place == "after a store is written" and times == 6
    # Records read in the meantime may be in the changelog already.
    assert (restored == 0) == is_written or (is_written and killed.uncommitted > 0)


@pytest.mark.parametrize(
    "place",
    [
        "before records are restored",
        pytest.param("after records are restored", marks=pytest.mark.extended),
    ],
)
def test_a_killed_restoration_is_continued(
    kafka: EmbeddedKafka, tmp_path: Path, place: str
) -> None:
    """Goal: a thread that replaces one killed during a restoration continues that restoration."""
    killed_application = KilledApplication(kafka, tmp_path)
    done, _ = killed_application.finish()
    check_nothing_lost(done)
    shutil.rmtree(killed_application.state)
    killed_application.kill(place, 1)
    account, restored = killed_application.finish(more=IDS)
    check_nothing_lost(account)
    assert account.repeated == 0
    assert restored > 0


@pytest.mark.extended
def test_a_spark_worker_is_killed_between_flush_and_offsets(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: only records that the worker had written but not committed are repeated by the
    threads that take over its tasks."""
    note = tmp_path / "hit"
    armed = ArmingMapper(Failpoint("after the producer is flushed", 3, note))
    application = Identified(kafka, tmp_path, mapper=armed)

    def is_hit() -> bool:
        application.write(20)
        return note.exists()

    with application.streams(spark) as streams:
        wait_for(is_hit, 90, "a worker reaches the failpoint")
        application.may_repeat = hit(note).uncommitted
        application.write(200)
        account = application.check(90)
        assert account.repeated > 0
        assert streams.error is None
