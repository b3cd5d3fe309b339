"""Queries the local stream threads.

Also defines the protocol that is shared with remote instances.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from msgspec.structs import replace

from millstream.errors import StateStoreMigratedError, StreamsError, ThreadUnavailableError
from millstream.runtime.queries.query_messages import (
    ANSWER_TIMEOUT_MS,
    CloseCursor,
    FetchNextPage,
    GetStoreOffsets,
    NextPage,
    QueryStore,
    StoreOffset,
    TaskQueryResult,
    ThreadQueryResult,
)
from millstream.runtime.states.thread_states import OwnedTask, TaskState, ThreadState
from millstream.runtime.thread_control import ThreadRequest
from millstream.state.queries.requests.query_results import FailureReason

logger = logging.getLogger(__name__)

#: The timeout for one thread if another thread can respond as well.
_ATTEMPT_TIMEOUT_MS: Final = 2_000
#: The states in which a thread can be queried.
_QUERYABLE_STATES: Final = frozenset(ThreadState) - {
    ThreadState.CREATED,
    ThreadState.PENDING_SHUTDOWN,
    ThreadState.DEAD,
}

#: The states in which threads report active and standby tasks.
_RUNNING, _STANDBY = TaskState.RUNNING.name, TaskState.STANDBY.name
#: Partitions by thread.
_PartitionsByThread = Mapping[str, Sequence[int]]
#: Sends a request to a thread by name. The future receives the response or its exception.
SendToThread = Callable[[str, ThreadRequest[Any]], Future[Any]]
#: Returns the states of the live threads, and their tasks by ID.
Threads = Callable[[], Mapping[str, tuple[ThreadState, Mapping[str, OwnedTask]]]]


class QuerySource(Protocol):
    """A source of store data: the local threads or a remote instance."""

    def query(self, request: QueryStore, subtopology: int | None) -> Sequence[TaskQueryResult]:
        """Query a store. Unreachable partitions have no result.

        `subtopology` is the ID of the store's sub-topology; None for a global store.
        """
        ...

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        """Fetch the next page of a result; see `FetchNextPage`.

        Raises:
            StateStoreMigratedError: the rest of the result is no longer available.
        """
        ...

    def close_cursor(self, cursor: str) -> None: ...


class LocalThreads:
    """Queries the stream threads of this instance. Thread-safe."""

    def __init__(
        self,
        threads: Threads,
        send: SendToThread,
        *,
        timeout_ms: int = ANSWER_TIMEOUT_MS,
        attempt_timeout_ms: int = _ATTEMPT_TIMEOUT_MS,
    ) -> None:
        self._threads = threads
        self._send = send
        self._timeout_ms = timeout_ms
        self._attempt_timeout_ms = attempt_timeout_ms
        self._next_thread = itertools.count()

    def query(self, request: QueryStore, subtopology: int | None) -> Sequence[TaskQueryResult]:
        """Query the threads that have the tasks of a store.

        For a global store, query one thread after another until one has the store.
        """
        if subtopology is None:
            return self._query_global(request)
        by_role = self._partitions_by_role(subtopology, request.partitions)
        copies = by_role.pop(_STANDBY, {})
        tasks = _merge(by_role.values())
        if not copies:
            return self._query_threads(tasks, request)
        # If the threads span several hosts, a task and its copy may be in the same application
        # instance. The copy is queried if no thread runs the task, or if its thread does not
        # respond.
        running = _partitions(by_role.get(_RUNNING, {}))
        first = _merge([tasks, _filter(copies, lambda partition: partition not in running)])
        within_ms = self._attempt_timeout_ms if running <= _partitions(copies) else None
        found = self._query_threads(first, request, within_ms, only_listed=True)
        answered = {answer.partition for answer in found if answer.reason is None}
        left = _filter(copies, lambda partition: partition in running - answered)
        return found + self._query_threads(left, request, only_listed=True) if left else found

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        thread, _, name = cursor.rpartition("/")
        request = FetchNextPage(name, page_number, page_bytes)
        (page,) = self._send_to_all([thread], request)
        if page is None:
            raise StateStoreMigratedError(
                f"The rest of the result is lost: stream thread {thread} is closing, has ended, or "
                "does not respond. Repeat the query."
            )
        if isinstance(page, StreamsError):
            raise page
        assert isinstance(page, NextPage)
        return page if page.cursor is None else NextPage(page.page, f"{thread}/{page.cursor}")

    def close_cursor(self, cursor: str) -> None:
        """Close a cursor without waiting for the response."""
        thread, _, name = cursor.rpartition("/")
        try:
            self._send(thread, CloseCursor(name))
        except StreamsError as error:
            # The cursor is closed with its thread, or will expire.
            logger.debug("A query cursor was not closed: %s", error)

    def offsets(self) -> Sequence[StoreOffset]:
        answers = self._send_to_all(list(self._threads()), GetStoreOffsets())
        return [each for answer in answers if isinstance(answer, tuple) for each in answer]

    def _query_global(self, request: QueryStore) -> Sequence[TaskQueryResult]:
        """Query a global store in the first thread that has the store.

        Such a thread has all of the store's data.
        """
        states = {
            name: state
            for name, (state, _) in self._threads().items()
            if state in _QUERYABLE_STATES
        }
        names = list(states)
        turn = next(self._next_thread) % max(1, len(names))
        names = sorted(
            names[turn:] + names[:turn], key=lambda name: states[name] is not ThreadState.RUNNING
        )
        failure: StreamsError | None = None
        for left, name in zip(reversed(range(len(names))), names, strict=True):
            # An unresponsive thread must not use up the time for the others.
            (answer,) = self._send_to_all(
                [name], request, self._attempt_timeout_ms if left else None
            )
            if isinstance(answer, ThreadQueryResult) and answer.tasks:
                return [_with_thread(name, task) for task in answer.tasks]
            if isinstance(answer, StreamsError):
                failure = answer
        return () if failure is None else [_failure(-1, failure)]

    def _query_threads(
        self,
        by_thread: _PartitionsByThread,
        request: QueryStore,
        within_ms: int | None = None,
        *,
        only_listed: bool = False,
    ) -> list[TaskQueryResult]:
        """Query threads for partitions of a store.

        With `only_listed`, each thread is queried only for its partitions in `by_thread`.
        Otherwise, the threads return all partitions that they currently have.
        """
        requests = {
            name: replace(request, partitions=frozenset(partitions)) if only_listed else request
            for name, partitions in by_thread.items()
        }
        found: list[TaskQueryResult] = []
        for name, answer in self._send_each(requests, within_ms).items():
            match answer:
                case ThreadQueryResult(tasks):
                    found += [_with_thread(name, task) for task in tasks]
                case StreamsError() as error:
                    found += [_failure(partition, error) for partition in by_thread[name]]
        return found

    def _partitions_by_role(
        self, subtopology: int, partitions: frozenset[int] | None
    ) -> dict[str, _PartitionsByThread]:
        """Return the reported partitions of a sub-topology by task state and thread."""
        found: dict[str, dict[str, list[int]]] = {}
        for name, (state, tasks) in self._threads().items():
            if state not in _QUERYABLE_STATES:
                continue
            for task_id, task in tasks.items():
                group, _, partition = task_id.partition("_")
                wanted = partitions is None or int(partition) in partitions
                if wanted and int(group) == subtopology:
                    role = _STANDBY if task.standby else task.state
                    found.setdefault(role, {}).setdefault(name, []).append(int(partition))
        return dict(found)

    def _send_to_all(
        self, names: Iterable[str], request: ThreadRequest[Any], within_ms: int | None = None
    ) -> list[Any]:
        """Send a request to threads and wait for their responses.

        Returns each thread's response or error, or None on timeout.
        """
        return list(self._send_each(dict.fromkeys(names, request), within_ms).values())

    def _send_each(
        self, requests: Mapping[str, ThreadRequest[Any]], within_ms: int | None
    ) -> dict[str, Any]:
        within_ms = self._timeout_ms if within_ms is None else within_ms
        latest = time.monotonic() + within_ms / 1_000
        # Send all requests before waiting, so that unresponsive threads do not delay the others.
        futures = {name: self._send_one(name, request) for name, request in requests.items()}
        return {
            name: _await_answer(reply, latest - time.monotonic()) for name, reply in futures.items()
        }

    def _send_one(self, name: str, request: ThreadRequest[Any]) -> Future[Any] | None:
        try:
            return self._send(name, request)
        except ThreadUnavailableError:
            return None


def _await_answer(reply: Future[Any] | None, within_s: float) -> Any:
    if reply is None:
        return None
    try:
        return reply.result(max(0.0, within_s))
    except ThreadUnavailableError:
        return None
    except StreamsError as error:
        return error
    except TimeoutError:
        # Ignore a late response.
        reply.cancel()
        return None


def _merge(several: Iterable[_PartitionsByThread]) -> _PartitionsByThread:
    found: dict[str, list[int]] = {}
    for by_thread in several:
        for name, partitions in by_thread.items():
            found.setdefault(name, []).extend(partitions)
    return found


def _filter(by_thread: _PartitionsByThread, wanted: Callable[[int], bool]) -> _PartitionsByThread:
    found = {name: [each for each in mine if wanted(each)] for name, mine in by_thread.items()}
    return {name: mine for name, mine in found.items() if mine}


def _partitions(by_thread: _PartitionsByThread) -> set[int]:
    return {partition for partitions in by_thread.values() for partition in partitions}


def _with_thread(thread: str, task: TaskQueryResult) -> TaskQueryResult:
    return task if task.cursor is None else task._replace(cursor=f"{thread}/{task.cursor}")


def _failure(partition: int, error: StreamsError) -> TaskQueryResult:
    return TaskQueryResult(
        partition,
        "",
        reason=FailureReason.STORE_EXCEPTION,
        message=f"{error} Try again.",
        retriable=error.retriable,
    )
