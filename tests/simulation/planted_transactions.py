"""Bugs of exactly-once, put into the production classes on purpose; see `planted`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from millstream.errors import BrokerUnavailableError, TaskMigratedError
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.member.group_member import GroupMember
from millstream.runtime.loop.rebalances import Rebalances
from millstream.runtime.loop.transactions import Transactions
from millstream.state.task_stores import TaskStores
from simulation.clients.admin import SimulatedAdmin
from simulation.clients.transactions import SimulatedTransactions

Replacement = tuple[Any, str, Any]


def _without_metadata() -> list[Replacement]:
    """Offsets are sent without the member's place in the group."""
    right = GroupMember.without_rejoin

    @contextmanager
    def wrong(self: Any) -> Iterator[GroupMetadata]:
        with right(self):
            yield GroupMetadata(-1, "sim", "")

    return [(GroupMember, "without_rejoin", wrong)]


def _writes_kept() -> list[Replacement]:
    """Stores keep what they were given by a transaction that is aborted."""
    right = TaskStores.close

    def wrong(self: Any, *, clean: bool) -> None:
        if not clean:
            for opened in self._stores.values():
                opened.base.commit(None)
        right(self, clean=clean)

    return [(TaskStores, "close", wrong)]


def _stable_end() -> list[Replacement]:
    """A restoration ends where the first open transaction begins."""

    def wrong(self: Any, partitions: Any, timeout_ms: int = 30_000) -> dict[Any, int]:
        places = list(partitions)
        return self._asking.ask(  # type: ignore[no-any-return]
            lambda: self._asking.leaders(places, "Asking for offsets"),
            lambda: {place: self._cluster.logs[place].last_stable for place in places},
            timeout_ms,
            "Asking for offsets",
        )

    return [(SimulatedAdmin, "end_offsets", wrong)]


def _failed_commit_counts() -> list[Replacement]:
    """A transaction that has expired, or whose commit was refused, is taken for committed."""
    right = Transactions.publish

    def wrong(self: Any, offsets: Any, whole: Any) -> None:
        try:
            right(self, offsets, whole)
        except TaskMigratedError:
            self._producer.purge()

    return [(Transactions, "publish", wrong)]


def _offsets_before_flush() -> list[Replacement]:
    """Offsets are sent while records are still on their way."""
    return [(SimulatedTransactions, "flush", lambda self, timeout_ms: None)]


def _not_aborted() -> list[Replacement]:
    """Work is given up, and what it has sent is committed with the next."""
    return [(SimulatedTransactions, "purge", lambda self, timeout_ms=0: None)]


def _late_answer_counts() -> list[Replacement]:
    """An answer to `send_offsets` that came too late counts for the next transaction."""
    right = SimulatedTransactions.send_offsets

    def wrong(self: Any, offsets: Any, member: Any, timeout_ms: int) -> None:
        if getattr(self, "late", False):
            self.late = False
            self._begun = True
            return
        try:
            right(self, offsets, member, timeout_ms)
        except BrokerUnavailableError:
            self.late = True
            raise

    return [(SimulatedTransactions, "send_offsets", wrong)]


def _work_kept() -> list[Replacement]:
    """The transaction is aborted, and the tasks go on with what they have."""
    return [(Rebalances, "drop_work", lambda self: self._commits.forget_sent())]


BUGS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "group metadata left out": _without_metadata,
    "writes of an abort kept": _writes_kept,
    "restored to the last stable offset": _stable_end,
    "expired transaction counts": _failed_commit_counts,
    "offsets before flush": _offsets_before_flush,
    "not aborted": _not_aborted,
    "late answer counts": _late_answer_counts,
    "aborted, and work kept": _work_kept,
}
