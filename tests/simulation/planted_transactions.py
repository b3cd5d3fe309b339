"""Bugs of exactly-once, planted in the production classes; see `planted`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from millstream.errors import BrokerUnavailableError, TaskMigratedError
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.membership.group_member import GroupMember
from millstream.runtime.loop.exactly_once import ExactlyOnce
from millstream.runtime.loop.rebalances import RebalanceHandler
from millstream.state.task_stores import TaskStores
from simulation.clients.admin import SimulatedAdmin
from simulation.clients.transactions import SimulatedTransactions

Replacement = tuple[Any, str, Any]


def _without_metadata() -> list[Replacement]:
    """Offsets are sent without the member's group metadata."""
    original = GroupMember.without_rejoin

    @contextmanager
    def replacement(self: Any) -> Iterator[GroupMetadata]:
        with original(self):
            yield GroupMetadata(-1, "sim", "")

    return [(GroupMember, "without_rejoin", replacement)]


def _writes_kept() -> list[Replacement]:
    """Stores keep the writes of an aborted transaction."""
    original = TaskStores.close

    def replacement(self: Any, *, clean: bool) -> None:
        if not clean:
            for opened in self._stores.values():
                opened.base.commit(None)
        original(self, clean=clean)

    return [(TaskStores, "close", replacement)]


def _stable_end() -> list[Replacement]:
    """A restoration ends at the last stable offset."""

    def replacement(self: Any, partitions: Any, timeout_ms: int = 30_000) -> dict[Any, int]:
        places = list(partitions)
        return self._requests.send(  # type: ignore[no-any-return]
            lambda: self._requests.leaders(places, "Listing offsets"),
            lambda: {place: self._cluster.logs[place].last_stable for place in places},
            timeout_ms,
            "Listing offsets",
        )

    return [(SimulatedAdmin, "end_offsets", replacement)]


def _failed_commit_counts() -> list[Replacement]:
    """An expired transaction, or one with a rejected commit, counts as committed."""
    original = ExactlyOnce.publish

    def replacement(self: Any, offsets: Any, whole: Any) -> None:
        try:
            original(self, offsets, whole)
        except TaskMigratedError:
            self._producer.purge()

    return [(ExactlyOnce, "publish", replacement)]


def _offsets_before_flush() -> list[Replacement]:
    """Offsets are sent while records are still in flight."""
    return [(SimulatedTransactions, "flush", lambda self, timeout_ms: None)]


def _not_aborted() -> list[Replacement]:
    """Discarded work is not aborted, so its records are committed with the next transaction."""
    return [(SimulatedTransactions, "purge", lambda self, timeout_ms=0: None)]


def _late_answer_counts() -> list[Replacement]:
    """A late answer to `send_offsets` counts for the next transaction."""
    original = SimulatedTransactions.send_offsets

    def replacement(self: Any, offsets: Any, member: Any, timeout_ms: int) -> None:
        if getattr(self, "late", False):
            self.late = False
            self._begun = True
            return
        try:
            original(self, offsets, member, timeout_ms)
        except BrokerUnavailableError:
            self.late = True
            raise

    return [(SimulatedTransactions, "send_offsets", replacement)]


def _uncommitted_work_kept() -> list[Replacement]:
    """The transaction is aborted, but the tasks continue with their uncommitted state."""
    return [(RebalanceHandler, "discard_work", lambda self: self._committer.discard_uncommitted())]


BUGS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "missing group metadata": _without_metadata,
    "aborted writes kept": _writes_kept,
    "restored to the last stable offset": _stable_end,
    "expired transaction counts": _failed_commit_counts,
    "offsets before flush": _offsets_before_flush,
    "not aborted": _not_aborted,
    "late answer counts": _late_answer_counts,
    "uncommitted work kept after abort": _uncommitted_work_kept,
}
