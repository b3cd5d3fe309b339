"""Bugs put into the production classes on purpose, to see that the simulation finds them.

`PYTHONPATH=tests python -m simulation.planted` plants each and tells the first seed that finds it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from millstream.clock import Deadline
from millstream.kafka.member.events import CommitOffset
from millstream.record import TaskId
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.loop.rebalances import OwnershipChange, Rebalances
from millstream.runtime.ownership.restoration import Restoration
from millstream.runtime.ownership.tasks import Tasks
from millstream.runtime.states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.changelogs.restore import StoreRestorer
from millstream.state.storage.overlay import OverlayStore
from millstream.state.task_stores import TaskStores
from simulation import planted_calls, planted_transactions
from simulation.history import History
from simulation.running import silence

_MOST_SEEDS: Final = 1_000
_COMMIT_MS: Final = 15_000
_FULL_BYTES: Final = 100
#: What is raised by a bug that does not fit the code, and finds itself.
_MISFITS: Final = ("TypeError:", "AttributeError:", "NameError:")

Replacement = tuple[Any, str, Any]


def _commit_before_flush() -> list[Replacement]:
    """Offsets are committed before what was sent is acknowledged."""

    def publish(self: Any, offsets: Any, whole: Deadline) -> None:
        self._committer.commit(offsets, _COMMIT_MS)
        self._flush(whole)

    return [(AtLeastOnce, "publish", publish), (AtLeastOnce, "publish_soon", publish)]


def _no_flush() -> list[Replacement]:
    """What was sent is not waited for before a commit."""
    return [(AtLeastOnce, "_flush", lambda self, whole: None)]


def _promoted_behind() -> list[Replacement]:
    """A standby that becomes active processes at once, however far it is behind."""
    right = Tasks._make_active

    def make_active(self: Any, task_id: TaskId, partitions: Any) -> None:
        known = self._tasks.get(task_id)
        was_standby = known is not None and known.state is TaskState.STANDBY
        right(self, task_id, partitions)
        if was_standby:
            self._restoration.remove(task_id)

    return [(Tasks, "_make_active", make_active)]


def _restored_too_little() -> list[Replacement]:
    """A restoration ends before the end of the changelog."""
    finished = Restoration.unfinished

    def unfinished(self: Any, task_id: Any) -> bool:
        if not finished(self, task_id):
            return False
        logs = [log for log in self._reading.values() if log.task_id == task_id]
        return not logs or any(not log.restored for log in logs)

    return [(Restoration, "unfinished", unfinished)]


def _forgotten_revocation() -> list[Replacement]:
    """A revocation is acknowledged, and the task goes on."""

    def revoke(self: Any, event: Any) -> OwnershipChange:
        self._member.acknowledge(event)
        return OwnershipChange("forgotten", revoked=True)

    return [(Rebalances, "_revoke", revoke)]


def _uncommitted_revocation() -> list[Replacement]:
    """Tasks are given up as if they were committed."""
    return [(Rebalances, "_commit_if_needed", lambda self, tasks: True)]


def _lost_work_kept() -> list[Replacement]:
    """What was lost is worked on as before."""

    def lose(self: Any, event: Any) -> OwnershipChange:
        self._member.acknowledge(event)
        return OwnershipChange("forgotten", revoked=True)

    return [(Rebalances, "_lose", lose)]


def _shifted_offsets(by: int) -> Callable[[], list[Replacement]]:
    def plant() -> list[Replacement]:
        right = StreamTask.offsets_to_commit

        def wrong(self: StreamTask) -> dict[Any, CommitOffset]:
            return {
                place: each._replace(offset=max(0, each.offset + by))
                for place, each in right(self).items()
            }

        return [(StreamTask, "offsets_to_commit", wrong)]

    return plant


def _changelog_offset_too_high() -> list[Replacement]:
    """A store notes an offset of its changelog that it has not reached."""
    right = StreamTask.post_commit

    def wrong(self: StreamTask, offsets: Any, acked: Mapping[Any, int]) -> None:
        right(self, offsets, {place: offset + 1 for place, offset in acked.items()})

    return [(StreamTask, "post_commit", wrong)]


def _store_not_written() -> list[Replacement]:
    """A commit moves the changelog's offset, and the writes that it stands for are dropped."""
    right = TaskStores.commit

    def wrong(self: Any, offsets: Any, **named: Any) -> None:
        for opened in self._stores.values():
            if hasattr(opened.base, "_writes"):
                opened.base._forget()
        right(self, offsets, **named)

    return [(TaskStores, "commit", wrong)]


def _full_store_written() -> list[Replacement]:
    """A store with many writes that wait makes room by writing them, in the middle of a batch."""
    right = OverlayStore.put

    def wrong(self: Any, key: bytes, value: bytes | None, timestamp: int) -> None:
        right(self, key, value, timestamp)
        if self.uncommitted_bytes > _FULL_BYTES:
            self.commit(None)

    return [(OverlayStore, "put", wrong)]


def _cache_not_flushed() -> list[Replacement]:
    """A commit leaves behind what caches hold back."""

    def prepare(self: Any) -> None:
        self.stores.log_changes()

    return [(StreamTask, "prepare_commit", prepare)]


def _restored_record_left_out() -> list[Replacement]:
    """The first record of each batch is not restored."""
    right = StoreRestorer.restore_batch

    def wrong(self: Any, keys: Any, values: Any, timestamps: Any, offsets: Any) -> int:
        if len(offsets) < 2:
            return right(self, keys, values, timestamps, offsets)
        return right(self, keys[1:], values[1:], timestamps[1:], offsets[1:])

    return [(StoreRestorer, "restore_batch", wrong)]


def _failed_send_forgotten() -> list[Replacement]:
    """After a fenced commit the tasks go on with what they have."""
    return [(Rebalances, "drop_work", lambda self: None)]


BUGS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "commit before flush": _commit_before_flush,
    "promoted behind": _promoted_behind,
    "forgotten revocation": _forgotten_revocation,
    "no flush": _no_flush,
    "restored too little": _restored_too_little,
    "uncommitted revocation": _uncommitted_revocation,
    "lost work kept": _lost_work_kept,
    "offsets one too high": _shifted_offsets(1),
    "offsets one too low": _shifted_offsets(-1),
    "changelog offset too high": _changelog_offset_too_high,
    "store not written": _store_not_written,
    "full store written": _full_store_written,
    "cache not flushed": _cache_not_flushed,
    "restored record left out": _restored_record_left_out,
    "work not dropped": _failed_send_forgotten,
    **planted_calls.BUGS,
}
TRANSACTIONAL: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    **planted_transactions.BUGS,
    **planted_calls.BUGS_OF_TRANSACTIONS,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Have a bug until this is left."""
    replacements = {**BUGS, **TRANSACTIONAL}[name]()
    originals = [(owner, what, getattr(owner, what)) for owner, what, _ in replacements]
    for owner, what, wrong in replacements:
        setattr(owner, what, wrong)
    try:
        yield
    finally:
        for owner, what, right in originals:
            setattr(owner, what, right)


def first_finding(name: str, first: int = 1) -> tuple[int, str] | None:
    """The first seed whose history fails with a bug, and how; None if none does.

    Args:
        name: of the bug.
        first: the seed to begin with.

    Raises:
        RuntimeError: the bug cannot be planted as it is written.
    """
    exactly_once = name in TRANSACTIONAL
    with planted(name):
        for seed in range(first, first + _MOST_SEEDS):
            failure = History(seed, exactly_once=exactly_once).run().failure
            if failure is None:
                continue
            told = failure.splitlines()[0]
            if any(kind in told for kind in _MISFITS):
                raise RuntimeError(f"{name!r} does not fit what it is planted into: {told}")
            return seed, told
    return None


def main(arguments: list[str]) -> int:
    """Plant bugs; 0 if each was found."""
    parser = argparse.ArgumentParser(prog="simulation.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="which bugs (default: all)")
    parser.add_argument("--first", type=int, default=1, help="the seed to begin with")
    asked = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(
            sys.executable, [sys.executable, "-m", "simulation.planted", *arguments], environment
        )
    silence()
    missed = 0
    for name in asked.names or [*BUGS, *TRANSACTIONAL]:
        began = time.process_time()
        found = first_finding(name, asked.first)
        took = time.process_time() - began
        missed += found is None
        told = "NOT FOUND" if found is None else f"seed {found[0]:>4}  {found[1][:150]}"
        sys.stdout.write(f"{name:<28} {took:6.1f} s  {told}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
