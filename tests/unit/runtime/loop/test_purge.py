"""Deletion of committed records from repartition topics."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from support.tasks.task_bench import TaskBench, source

from millstream.record import TopicPartition
from millstream.runtime.loop.purge import RepartitionPurge

INTERVAL_MS = 200


class Deletion:
    """Keeps the requests; the test completes them."""

    def __init__(self) -> None:
        self.requests: list[dict[TopicPartition, int]] = []
        self.futures: dict[TopicPartition, Future[Any]] = {}

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Future[Any]]:
        self.requests.append(dict(before))
        self.futures = {place: Future() for place in before}
        return self.futures

    def answer(self, error: Exception | None = None) -> None:
        for future in self.futures.values():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


class PurgeBench:
    """The tasks of a thread, with a repartition topic as their source."""

    def __init__(self, folder: Path) -> None:
        self.bench = TaskBench(folder)
        self.deletion = Deletion()
        self.purge = self.new_purge()

    def new_purge(self) -> RepartitionPurge:
        return RepartitionPurge(self.deletion, {source().topic}, INTERVAL_MS, self.bench.clock)

    def run_after_interval(self) -> list[dict[TopicPartition, int]]:
        """Let the interval pass and return the new requests."""
        self.bench.clock.advance(INTERVAL_MS)
        before = len(self.deletion.requests)
        self.purge.run(self.bench.tasks.running)
        return self.deletion.requests[before:]


@pytest.fixture
def purge_bench(tmp_path: Path) -> PurgeBench:
    purge_bench = PurgeBench(tmp_path)
    purge_bench.bench.assign([0])
    purge_bench.bench.run_all()
    return purge_bench


def test_committed_records_are_deleted_once(purge_bench: PurgeBench) -> None:
    assert purge_bench.run_after_interval() == []
    purge_bench.bench.feed("a", "b", commit=False)
    assert purge_bench.run_after_interval() == []
    purge_bench.bench.commit()
    assert purge_bench.run_after_interval() == [{source(): 2}]
    purge_bench.deletion.answer()
    assert purge_bench.run_after_interval() == []
    purge_bench.bench.feed("c")
    assert purge_bench.run_after_interval() == [{source(): 3}]


def test_no_request_is_sent_while_another_is_pending(purge_bench: PurgeBench) -> None:
    purge_bench.bench.feed("a")
    assert purge_bench.run_after_interval() == [{source(): 1}]
    purge_bench.bench.feed("b")
    assert purge_bench.run_after_interval() == []
    purge_bench.deletion.answer()
    assert purge_bench.run_after_interval() == [{source(): 2}]


def test_failed_deletion_is_repeated(purge_bench: PurgeBench) -> None:
    purge_bench.bench.feed("a")
    purge_bench.run_after_interval()
    purge_bench.deletion.answer(OSError("no broker"))
    assert purge_bench.run_after_interval() == [{source(): 1}]


def test_new_owner_deletes_records_committed_before(purge_bench: PurgeBench) -> None:
    """Detects records that stay until new ones arrive because the task moved right after its
    commit: the last records of a stream would never be deleted."""
    purge_bench.bench.feed("a", "b")
    purge_bench.bench.assign([])
    purge_bench.purge = purge_bench.new_purge()
    purge_bench.bench.assign([0])
    purge_bench.bench.run_all()
    assert purge_bench.run_after_interval() == [{source(): 2}]
