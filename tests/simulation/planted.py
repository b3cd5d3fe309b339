"""Bugs planted in the production classes, to verify that the simulation detects them.

`PYTHONPATH=tests python -m simulation.planted` plants each bug and prints the first seed that
detects it.
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
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TaskId
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.loop.rebalances import RebalanceHandler, RebalanceResult
from millstream.runtime.states.thread_states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task_management.restoration import StateRestorer
from millstream.runtime.task_management.task_manager import TaskManager
from millstream.state.changelogs.restore import StoreRestorer
from millstream.state.storage.overlay import OverlayStore
from millstream.state.task_stores import TaskStores
from simulation import planted_calls, planted_transactions
from simulation.history import History
from simulation.running import silence

_MAX_SEEDS: Final = 1_000
_COMMIT_MS: Final = 15_000
_FULL_BYTES: Final = 100
#: Errors that show that a planted bug does not match the code any more.
_MISFITS: Final = ("TypeError:", "AttributeError:", "NameError:")

Replacement = tuple[Any, str, Any]


def _commit_before_flush() -> list[Replacement]:
    """Offsets are committed before the sent records are acknowledged."""

    def publish(self: Any, offsets: Any, whole: Deadline) -> None:
        self._committer.commit(offsets, _COMMIT_MS)
        self._flush(whole)

    return [(AtLeastOnce, "publish", publish), (AtLeastOnce, "publish_async", publish)]


def _no_flush() -> list[Replacement]:
    """A commit does not wait for acknowledgments."""
    return [(AtLeastOnce, "_flush", lambda self, whole: None)]


def _promoted_without_restoring() -> list[Replacement]:
    """A standby that becomes active starts at once, without restoring the rest."""
    original = TaskManager._make_active

    def make_active(self: Any, task_id: TaskId, partitions: Any) -> None:
        known = self._tasks.get(task_id)
        was_standby = known is not None and known.state is TaskState.STANDBY
        original(self, task_id, partitions)
        if was_standby:
            self._restoration.remove(task_id)

    return [(TaskManager, "_make_active", make_active)]


def _restored_too_little() -> list[Replacement]:
    """A restoration ends before the end of the changelog."""
    finished = StateRestorer.has_unfinished

    def has_unfinished(self: Any, task_id: Any) -> bool:
        if not finished(self, task_id):
            return False
        logs = [log for log in self._reading.values() if log.task_id == task_id]
        return not logs or any(not log.restored for log in logs)

    return [(StateRestorer, "has_unfinished", has_unfinished)]


def _ignored_revocation() -> list[Replacement]:
    """A revocation is acknowledged, but the task continues."""

    def revoke(self: Any, event: Any) -> RebalanceResult:
        self._member.acknowledge(event)
        return RebalanceResult("ignored", revoked=True)

    return [(RebalanceHandler, "_on_revoked", revoke)]


def _uncommitted_revocation() -> list[Replacement]:
    """Revoked tasks are closed without a commit."""
    return [(RebalanceHandler, "_commit_if_needed", lambda self, tasks: True)]


def _lost_tasks_kept() -> list[Replacement]:
    """Lost tasks continue."""

    def lose(self: Any, event: Any) -> RebalanceResult:
        self._member.acknowledge(event)
        return RebalanceResult("ignored", revoked=True)

    return [(RebalanceHandler, "_on_lost", lose)]


def _shifted_offsets(by: int) -> Callable[[], list[Replacement]]:
    def plant() -> list[Replacement]:
        original = StreamTask.offsets_to_commit

        def replacement(self: StreamTask) -> dict[Any, CommitOffset]:
            return {
                place: each._replace(offset=max(0, each.offset + by))
                for place, each in original(self).items()
            }

        return [(StreamTask, "offsets_to_commit", replacement)]

    return plant


def _changelog_offset_too_high() -> list[Replacement]:
    """A store records a changelog offset that it has not reached."""
    original = StreamTask.post_commit

    def replacement(self: StreamTask, offsets: Any, acked: Mapping[Any, int]) -> None:
        original(self, offsets, {place: offset + 1 for place, offset in acked.items()})

    return [(StreamTask, "post_commit", replacement)]


def _store_not_written() -> list[Replacement]:
    """A commit advances the changelog offset but drops the store's writes."""
    original = TaskStores.commit

    def replacement(self: Any, offsets: Any, **named: Any) -> None:
        for opened in self._stores.values():
            if hasattr(opened.base, "_writes"):
                opened.base._discard_writes()
        original(self, offsets, **named)

    return [(TaskStores, "commit", replacement)]


def _full_store_written() -> list[Replacement]:
    """A store with many uncommitted writes writes them to disk in the middle of a batch."""
    original = OverlayStore.put

    def replacement(self: Any, key: bytes, value: bytes | None, timestamp: int) -> None:
        original(self, key, value, timestamp)
        if self.uncommitted_bytes > _FULL_BYTES:
            self.commit(None)

    return [(OverlayStore, "put", replacement)]


def _cache_not_flushed() -> list[Replacement]:
    """A commit does not flush the caches."""

    def prepare(self: Any) -> None:
        self.stores.log_changes()

    return [(StreamTask, "prepare_commit", prepare)]


def _restored_record_left_out() -> list[Replacement]:
    """Restoring skips the first record of each batch."""
    original = StoreRestorer.restore_batch

    def replacement(self: Any, keys: Any, values: Any, timestamps: Any, offsets: Any) -> int:
        if len(offsets) < 2:
            return original(self, keys, values, timestamps, offsets)
        return original(self, keys[1:], values[1:], timestamps[1:], offsets[1:])

    return [(StoreRestorer, "restore_batch", replacement)]


def _uncommitted_work_kept() -> list[Replacement]:
    """After a fenced commit, the tasks continue with their uncommitted state."""
    return [(RebalanceHandler, "discard_work", lambda self: None)]


BUGS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "commit before flush": _commit_before_flush,
    "promoted without restoring": _promoted_without_restoring,
    "ignored revocation": _ignored_revocation,
    "no flush": _no_flush,
    "restored too little": _restored_too_little,
    "uncommitted revocation": _uncommitted_revocation,
    "lost tasks kept": _lost_tasks_kept,
    "offsets one too high": _shifted_offsets(1),
    "offsets one too low": _shifted_offsets(-1),
    "changelog offset too high": _changelog_offset_too_high,
    "store not written": _store_not_written,
    "full store written": _full_store_written,
    "cache not flushed": _cache_not_flushed,
    "restored record left out": _restored_record_left_out,
    "uncommitted work kept": _uncommitted_work_kept,
    **planted_calls.BUGS,
}
TRANSACTIONAL: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    **planted_transactions.BUGS,
    **planted_calls.TRANSACTIONAL_BUGS,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug until the context ends."""
    replacements = {**BUGS, **TRANSACTIONAL}[name]()
    originals = [(owner, what, getattr(owner, what)) for owner, what, _ in replacements]
    for owner, what, replacement in replacements:
        setattr(owner, what, replacement)
    try:
        yield
    finally:
        for owner, what, original in originals:
            setattr(owner, what, original)


def first_finding(name: str, first: int = 1) -> tuple[int, str] | None:
    """Return the first seed that detects a bug, and the failure; None if none does.

    Args:
        name: of the bug.
        first: the first seed.

    Raises:
        RuntimeError: the bug does not match the code.
    """
    exactly_once = name in TRANSACTIONAL
    with planted(name):
        for seed in range(first, first + _MAX_SEEDS):
            failure = History(seed, exactly_once=exactly_once).run().failure
            if failure is None:
                continue
            failure_line = failure.splitlines()[0]
            if any(kind in failure_line for kind in _MISFITS):
                raise RuntimeError(f"{name!r} does not match the code: {failure_line}")
            return seed, failure_line
    return None


def main(arguments: list[str]) -> int:
    """Plant bugs. Return 0 if all were detected."""
    parser = argparse.ArgumentParser(prog="simulation.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="the bugs to plant (default: all)")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(
            sys.executable, [sys.executable, "-m", "simulation.planted", *arguments], environment
        )
    silence()
    missed = 0
    for name in options.names or [*BUGS, *TRANSACTIONAL]:
        began = time.process_time()
        found = first_finding(name, options.first)
        took = time.process_time() - began
        missed += found is None
        failure_line = "NOT DETECTED" if found is None else f"seed {found[0]:>4}  {found[1][:150]}"
        sys.stdout.write(f"{name:<28} {took:6.1f} s  {failure_line}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
