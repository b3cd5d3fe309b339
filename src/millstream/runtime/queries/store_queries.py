"""Executes state store queries on a stream thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from millstream.clock import Clock
from millstream.errors import StreamsError, as_streams_error
from millstream.runtime.queries.open_cursors import PAGE_TIME_MS, OpenCursors
from millstream.runtime.queries.query_messages import (
    CloseCursor,
    FetchNextPage,
    GetStoreOffsets,
    Page,
    QueryStore,
    StoreOffset,
    StoreRequest,
    TaskQueryResult,
    ThreadQueryResult,
)
from millstream.runtime.queries.store_positions import NO_UPSTREAM, Upstream, store_position
from millstream.runtime.states.thread_states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.requests.position import Position
from millstream.state.queries.requests.query_results import FailureReason
from millstream.state.queries.store_reads import (
    NO_POSITION,
    StoreReadResult,
    read_failure,
    read_store,
    unknown_query_message,
)

#: The role of a global store, which belongs to no task.
GLOBAL: Final = "GLOBAL"
#: The states in which the stores of a task are open and can be read between batches.
_READABLE: Final = frozenset({TaskState.RUNNING, TaskState.RESTORING, TaskState.STANDBY})

#: The maximum size of a result, in bytes of keys and values, and the minimum share of each task.
_MAX_BYTES: Final = 1 << 20
_MIN_BYTES_PER_TASK: Final = 4 << 10


class StoreQueries:
    """Executes queries of a thread's stores between batches."""

    def __init__(
        self,
        upstream: Mapping[int, Mapping[str, Upstream]],
        tasks: Callable[[], Collection[StreamTask]],
        global_store: Callable[[str], OpenStore | None],
        clock: Clock,
    ) -> None:
        self._upstream = upstream
        self._tasks = tasks
        self._global_store = global_store
        self._cursors = OpenCursors(clock)

    def answer(self, request: StoreRequest[Any]) -> Any:
        """Return the reply to a request, or the error."""
        # Storage errors of a query must affect only its caller. This check takes 0.15 us per task.
        failures = [task.stores.failures for task in self._tasks()]
        unfailed = [each for each in failures if each.first is None]
        try:
            match request:
                case QueryStore():
                    return ThreadQueryResult(tuple(self._query_store(request)))
                case FetchNextPage(cursor, page_number, page_bytes):
                    return self._cursors.next_page(cursor, page_number, page_bytes)
                case CloseCursor(cursor):
                    self._cursors.close(cursor)
                    return None
                case GetStoreOffsets():
                    return tuple(self._offsets())
                case unknown:
                    return StreamsError(f"Unknown query for a stream thread: {unknown!r}.")
        except Exception as error:
            # The error is for the requester; the thread continues.
            return as_streams_error("Answering a query", error)
        finally:
            for each in unfailed:
                each.reset()

    def close_idle_cursors(self) -> None:
        if not self._cursors.is_empty:
            self._cursors.close_idle()

    def close(self) -> None:
        self._cursors.close_all()

    def _query_store(self, request: QueryStore) -> Iterator[TaskQueryResult]:
        shared = self._global_store(request.store)
        if shared is not None:
            yield self._read(request, shared, partition=-1, role=GLOBAL, known=None)
            return
        matching = list(self._matching_tasks(request))
        # The tasks share the size and the time of one result.
        share = max(1, len(matching))
        max_bytes = max(_MIN_BYTES_PER_TASK, _MAX_BYTES // share)
        if request.page_bytes > max_bytes:
            request = replace(request, page_bytes=max_bytes)
        for task, opened in matching:
            partition = task.task_id.partition
            role = task.state.name
            if request.active_only and task.state is not TaskState.RUNNING:
                yield TaskQueryResult(
                    partition,
                    role,
                    reason=FailureReason.NOT_ACTIVE,
                    message=(
                        f"The query requires an active, running task, but {task.task_id} is "
                        f"{role.lower()} here. Repeat the query after the rebalance."
                    ),
                )
                continue
            yield self._read(
                request,
                opened,
                partition=partition,
                role=role,
                known=self._position(request, task),
                page_ms=PAGE_TIME_MS / share,
            )

    def _position(self, request: QueryStore, task: StreamTask) -> Position | None:
        """Return a store's position according to its task's input, if requested."""
        if not request.with_position and not request.bound:
            return None
        upstreams = self._upstream.get(task.task_id.subtopology, {})
        skip_cache = request.read is not None and request.read.skip_cache
        upstream = upstreams.get(request.store, NO_UPSTREAM)
        return store_position(task, upstream, request.store, skip_cache=skip_cache)

    def _matching_tasks(self, request: QueryStore) -> Iterator[tuple[StreamTask, OpenStore]]:
        for task in self._tasks():
            if request.partitions is None or task.task_id.partition in request.partitions:
                opened = task.stores.find(request.store)
                if opened is not None and task.state in _READABLE:
                    yield task, opened

    def _read(
        self,
        request: QueryStore,
        opened: OpenStore,
        *,
        partition: int,
        role: str,
        known: Position | None,
        page_ms: float = PAGE_TIME_MS,
    ) -> TaskQueryResult:
        started = time.perf_counter_ns()
        if request.read is None:
            answer = StoreReadResult(
                known or NO_POSITION,
                reason=FailureReason.UNKNOWN_QUERY_TYPE,
                message=unknown_query_message(request.store, request.query),
            )
        else:
            answer = read_store(
                request.store,
                opened,
                request.read,
                bound=Position(request.bound) if request.bound else NO_POSITION,
                partition=partition,
                reached=known,
                with_position=request.with_position,
            )
        page: Page = ()
        cursor: str | None = None
        if answer.pairs is not None:
            try:
                page, cursor = self._cursors.begin(
                    opened, answer.pairs, request.page_bytes, page_ms
                )
            except StreamsError as error:
                answer = read_failure(answer.position, error)
        return TaskQueryResult(
            partition,
            role,
            page,
            cursor,
            answer.reason,
            answer.message,
            answer.position.as_dict(),
            time.perf_counter_ns() - started,
            answer.retriable,
        )

    def _offsets(self) -> Iterator[StoreOffset]:
        for task in self._tasks():
            if task.state not in _READABLE:
                continue
            for partition, restorer in task.stores.restorers().items():
                next_offset = 0 if restorer.reached is None else restorer.reached + 1
                running = task.state is TaskState.RUNNING
                yield StoreOffset(restorer.store_name, partition, None if running else next_offset)
