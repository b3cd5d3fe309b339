"""A stream thread's answers to queries of its stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from millstream.clock import Clock
from millstream.errors import StreamsError, as_streams_error
from millstream.query.requests.answers import FailureReason
from millstream.query.requests.position import Position
from millstream.runtime.queries.cursors import PAGE_MS, Cursors
from millstream.runtime.queries.questions import (
    AskNextPage,
    AskOffsets,
    AskStore,
    CloseCursor,
    Page,
    StoreOffset,
    StoreQuestion,
    TaskAnswer,
    ThreadAnswer,
)
from millstream.runtime.queries.reach import NO_UPSTREAM, Upstream, reached
from millstream.runtime.states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.answers import (
    NO_POSITION,
    StoreAnswer,
    failed,
    read_store,
    unknown_query,
)

#: The role of what answers for a global store, which no task has.
GLOBAL: Final = "GLOBAL"
#: In these states the stores of a task are open, and nobody writes to them out of turn.
_READABLE: Final = frozenset({TaskState.RUNNING, TaskState.RESTORING, TaskState.STANDBY})

#: How many bytes of keys and values one answer has, and those of each task at least.
_MOST_BYTES: Final = 1 << 20
_LEAST_BYTES: Final = 4 << 10


class StoreQueries:
    """Answers what a thread is asked of its stores, between two batches.

    Args:
        upstream: what lies in front of each store, by sub-topology.
        tasks: the tasks of now.
        global_store: finds an open global store; None if there is none of that name.
        clock: time, for what is fetched page by page.
    """

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
        self._cursors = Cursors(clock)

    def answer(self, question: StoreQuestion[Any]) -> Any:
        """The answer, or the error that there was instead of one."""
        # Errors of storages are the caller's: 0.15 us a task.
        failures = [task.stores.failures for task in self._tasks()]
        unfailed = [each for each in failures if each.first is None]
        try:
            match question:
                case AskStore():
                    return ThreadAnswer(tuple(self._ask(question)))
                case AskNextPage(cursor, page_number, page_bytes):
                    return self._cursors.next_page(cursor, page_number, page_bytes)
                case CloseCursor(cursor):
                    self._cursors.close(cursor)
                    return None
                case AskOffsets():
                    return tuple(self._offsets())
                case unknown:
                    return StreamsError(f"A stream thread does not know the query {unknown!r}.")
        except Exception as error:
            # Whatever it is, it is the asker's: the thread goes on.
            return as_streams_error("Answering a query", error)
        finally:
            for each in unfailed:
                each.forget()

    def tidy(self) -> None:
        """Let go of what nobody wants any more."""
        if not self._cursors.are_none:
            self._cursors.drop_idle()

    def close(self) -> None:
        """Let go of everything that holds stores."""
        self._cursors.close_all()

    def _ask(self, question: AskStore) -> Iterator[TaskAnswer]:
        shared = self._global_store(question.store)
        if shared is not None:
            yield self._answer(question, shared, partition=-1, role=GLOBAL, known=None)
            return
        having = list(self._having(question))
        # All of them are one answer, which the driver has to take and the thread to work out.
        share = max(1, len(having))
        most = max(_LEAST_BYTES, _MOST_BYTES // share)
        if question.page_bytes > most:
            question = replace(question, page_bytes=most)
        for task, opened in having:
            partition = task.task_id.partition
            role = task.state.name
            if question.active_only and task.state is not TaskState.RUNNING:
                yield TaskAnswer(
                    partition,
                    role,
                    reason=FailureReason.NOT_ACTIVE,
                    message=(
                        f"An active, running task was asked for, and {task.task_id} is "
                        f"{role.lower()} here. Ask again when the rebalance is over."
                    ),
                )
                continue
            yield self._answer(
                question,
                opened,
                partition=partition,
                role=role,
                known=self._known(question, task),
                page_ms=PAGE_MS / share,
            )

    def _known(self, question: AskStore, task: StreamTask) -> Position | None:
        """How far a store is, by what its task has read; None if nobody wants to know."""
        if not question.with_position and not question.bound:
            return None
        upstreams = self._upstream.get(task.task_id.subtopology, {})
        past_cache = question.read is not None and question.read.past_cache
        upstream = upstreams.get(question.store, NO_UPSTREAM)
        return reached(task, upstream, question.store, past_cache=past_cache)

    def _having(self, question: AskStore) -> Iterator[tuple[StreamTask, OpenStore]]:
        """The tasks that are asked, with their stores."""
        for task in self._tasks():
            if question.partitions is None or task.task_id.partition in question.partitions:
                opened = task.stores.find(question.store)
                if opened is not None and task.state in _READABLE:
                    yield task, opened

    def _answer(
        self,
        question: AskStore,
        opened: OpenStore,
        *,
        partition: int,
        role: str,
        known: Position | None,
        page_ms: float = PAGE_MS,
    ) -> TaskAnswer:
        started = time.perf_counter_ns()
        if question.read is None:
            answer = StoreAnswer(
                known or NO_POSITION,
                reason=FailureReason.UNKNOWN_QUERY_TYPE,
                message=unknown_query(question.store, question.query),
            )
        else:
            answer = read_store(
                question.store,
                opened,
                question.read,
                bound=Position(question.bound) if question.bound else NO_POSITION,
                partition=partition,
                reached=known,
                with_position=question.with_position,
            )
        page: Page = ()
        cursor: str | None = None
        if answer.pairs is not None:
            try:
                page, cursor = self._cursors.begin(
                    opened, answer.pairs, question.page_bytes, page_ms
                )
            except StreamsError as error:
                answer = failed(answer.position, error)
        return TaskAnswer(
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
            for place, restorer in task.stores.restorers().items():
                following = 0 if restorer.reached is None else restorer.reached + 1
                running = task.state is TaskState.RUNNING
                yield StoreOffset(restorer.store_name, place, None if running else following)
