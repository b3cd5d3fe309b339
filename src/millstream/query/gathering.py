"""Gathering what is said of a store by everybody who has partitions of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from millstream.assignment.wire.assignment_info import HostInfo
from millstream.errors import StateStoreNotAvailableError, StreamsError
from millstream.query.asking import Answering
from millstream.query.pages import PagedPairs
from millstream.query.peers import Instance, Instances
from millstream.query.routing import Routing
from millstream.query.stores import KnownStore
from millstream.runtime.queries.questions import ANSWER_MS, AskStore, TaskAnswer

#: Who says something, and what.
Said = tuple[Answering, TaskAnswer]

#: How many answers of one other instance are waited for at a time.
_MOST_AT_ONCE: Final = 16
#: The first pages of an answer have together about so many bytes, and each of them at least that.
_ALL_BYTES: Final = 8 << 20
_LEAST_PAGE_BYTES: Final = 16 << 10
#: What answers best, of tasks that answer: one that is restored may have nothing yet.
_ROLES: Final = ("RUNNING", "STANDBY")


@dataclass
class Gathered:
    """What was said.

    Args:
        said: the best answer of each partition.
        failed: why partitions have none, as far as somebody failed who may have them.
    """

    said: dict[int, Said] = field(default_factory=dict)
    failed: dict[int, StreamsError] = field(default_factory=dict)

    def close(self) -> None:
        """Let go of the rest of all answers."""
        PagedPairs(list(self.said.values())).close()


@dataclass(frozen=True)
class _Asked:
    source: Instance
    partitions: frozenset[int]
    answers: Future[Sequence[TaskAnswer]]


class Gathering:
    """Asks this instance and others, those at the same time, for the partitions of a store.

    Whoever fails is passed over: others may have copies. All together may take 10 s.

    Args:
        own: the threads of this instance.
        routing: tells which other instances have which partitions.
        instances: those instances.
        within_ms: how long an answer may take altogether.
    """

    def __init__(
        self, own: Answering, routing: Routing, instances: Instances, within_ms: int = ANSWER_MS
    ) -> None:
        self._own = own
        self._routing = routing
        self._instances = instances
        self._within_s = within_ms / 1_000
        # One for each instance: whoever waits for one that hangs keeps nobody from the others.
        self._pools: dict[HostInfo, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    def gather(self, store: KnownStore, question: AskStore, wanted: frozenset[int]) -> Gathered:
        """The best answer of each partition that is somewhere.

        Args:
            store: the store.
            question: what is asked.
            wanted: the partitions of which something must be said.
        """
        until_s = time.monotonic() + self._within_s
        share = max(_LEAST_PAGE_BYTES, _ALL_BYTES // max(1, len(wanted)))
        question = replace(question, page_bytes=min(question.page_bytes, share))
        found = Gathered()
        asked: set[tuple[HostInfo, int]] = set()
        try:
            # What nobody has here is asked of others at the same time.
            away = wanted - self._routing.here(store)
            waiting = self._ask_others(store, question, away, asked, standbys=False)
            self._ask_own(store, question, wanted - away, found)
            self._collect(found, waiting, until_s)
            while missing := wanted - _answered(found):
                copies = not question.active_only
                waiting = self._ask_others(store, question, missing, asked, standbys=copies)
                if not waiting:
                    break
                self._collect(found, waiting, until_s)
        except BaseException:
            found.close()
            raise
        return found

    def keep(self, hosts: Set[HostInfo]) -> None:
        """Let go of the threads that have waited for all other instances but these."""
        with self._lock:
            for host in self._pools.keys() - hosts:
                self._pools.pop(host).shutdown(wait=False)

    def _ask_own(
        self, store: KnownStore, question: AskStore, here: frozenset[int], found: Gathered
    ) -> None:
        try:
            for answer in self._own.ask(question, _part_of(store)):
                _keep_better(found.said, (self._own, answer))
        except StreamsError as error:
            found.failed.update(dict.fromkeys(here, error))

    def _ask_others(
        self,
        store: KnownStore,
        question: AskStore,
        missing: frozenset[int],
        asked: set[tuple[HostInfo, int]],
        *,
        standbys: bool,
    ) -> list[_Asked]:
        """Ask for each partition the next instance that has it and has not been asked."""
        waiting = []
        for host, there in self._routing.others(store, standbys=standbys) if missing else ():
            mine = frozenset(each for each in there & missing if (host, each) not in asked)
            if mine:
                missing -= mine
                asked.update((host, each) for each in mine)
                source = self._instances.at(host)
                only = replace(question, partitions=mine)
                answers = self._submit(host, partial(source.ask, only, _part_of(store)))
                waiting.append(_Asked(source, mine, answers))
        return waiting

    def _collect(self, found: Gathered, waiting: Sequence[_Asked], until_s: float) -> None:
        wait([each.answers for each in waiting], max(0.0, until_s - time.monotonic()))
        for each in waiting:
            if not each.answers.done():
                if not each.answers.cancel():
                    each.answers.add_done_callback(partial(_let_go, each.source))
                error: StreamsError = StateStoreNotAvailableError(
                    f"{each.source.host} has not answered within {self._within_s:.0f} s."
                )
                found.failed.update(dict.fromkeys(each.partitions, error))
                continue
            try:
                for answer in each.answers.result():
                    _keep_better(found.said, (each.source, answer))
            except StreamsError as failure:
                found.failed.update(dict.fromkeys(each.partitions, failure))

    def _submit(
        self, host: HostInfo, ask: Callable[[], Sequence[TaskAnswer]]
    ) -> Future[Sequence[TaskAnswer]]:
        with self._lock:
            pool = self._pools.get(host)
            if pool is None:
                pool = ThreadPoolExecutor(_MOST_AT_ONCE, f"millstream-others-{host}")
                self._pools[host] = pool
            return pool.submit(ask)


def _part_of(store: KnownStore) -> int | None:
    return None if store.part is None else store.part.id


def _answered(found: Gathered) -> frozenset[int]:
    return frozenset(
        partition
        for partition, (_, answer) in found.said.items()
        if answer.reason is None and answer.role in _ROLES
    )


def _let_go(source: Instance, answers: Future[Sequence[TaskAnswer]]) -> None:
    """Nobody waits for this any more."""
    if answers.exception() is None:
        PagedPairs([(source, answer) for answer in answers.result()]).close()


def _keep_better(found: dict[int, Said], said: Said) -> None:
    """Of several that have a partition: one that answers, and the one that is ahead."""
    partition = said[1].partition
    before = found.get(partition)
    if before is None:
        found[partition] = said
        return
    better, worse = (said, before) if _rank(said[1]) > _rank(before[1]) else (before, said)
    PagedPairs([worse]).close()
    found[partition] = better


def _rank(answer: TaskAnswer) -> tuple[bool, int]:
    ahead = len(_ROLES) - _ROLES.index(answer.role) if answer.role in _ROLES else 0
    return answer.reason is None, ahead
