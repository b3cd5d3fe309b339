"""Whoever can be asked for what is in stores: the threads of this instance, or another instance."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from msgspec.structs import replace

from millstream.errors import StateStoreMigratedError, StreamsError, ThreadUnavailableError
from millstream.query.requests.answers import FailureReason
from millstream.runtime.control import Question
from millstream.runtime.queries.questions import (
    ANSWER_MS,
    AskNextPage,
    AskOffsets,
    AskStore,
    CloseCursor,
    NextPage,
    StoreOffset,
    TaskAnswer,
    ThreadAnswer,
)
from millstream.runtime.states import OwnedTask, TaskState, ThreadState

logger = logging.getLogger(__name__)

#: How long one thread is waited for where another one may answer as well.
_TRY_MS: Final = 2_000
#: In these states a thread answers.
_ASKED: Final = frozenset(ThreadState) - {
    ThreadState.CREATED,
    ThreadState.PENDING_SHUTDOWN,
    ThreadState.DEAD,
}

#: How threads tell that they run a task, or have a copy of it.
_RUNNING, _STANDBY = TaskState.RUNNING.name, TaskState.STANDBY.name
#: The partitions that threads have, by thread.
_Having = Mapping[str, Sequence[int]]
#: Asks a thread of that name; what is returned gets the answer, or its exception.
AskThread = Callable[[str, Question[Any]], Future[Any]]
#: The threads that live: their states, and their tasks by id.
Threads = Callable[[], Mapping[str, tuple[ThreadState, Mapping[str, OwnedTask]]]]


class Answering(Protocol):
    """Somebody who has stores."""

    def ask(self, question: AskStore, subtopology: int | None) -> Sequence[TaskAnswer]:
        """What is in a store. What cannot be reached gives no answer.

        Args:
            question: what is asked.
            subtopology: whose tasks have the store; None for a global one.
        """
        ...

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        """More of an answer; see `AskNextPage`.

        Raises:
            StateStoreMigratedError: the rest of it is gone.
        """
        ...

    def close_cursor(self, cursor: str) -> None:
        """Nobody wants the rest of an answer any more."""
        ...


class OwnThreads:
    """The stream threads of this instance.

    Usable from several threads.

    Args:
        threads: those that live.
        ask: asks one.
        answer_ms: how long they may take to answer.
        try_ms: how long one is waited for where another one may answer as well.
    """

    def __init__(
        self,
        threads: Threads,
        ask: AskThread,
        *,
        answer_ms: int = ANSWER_MS,
        try_ms: int = _TRY_MS,
    ) -> None:
        self._threads = threads
        self._ask = ask
        self._answer_ms = answer_ms
        self._try_ms = try_ms
        self._turn = itertools.count()

    def ask(self, question: AskStore, subtopology: int | None) -> Sequence[TaskAnswer]:
        """What is in a store; see `Answering`. The threads that have tasks of it are asked, or, of
        a global store, one after the other until one has it."""
        if subtopology is None:
            return self._ask_any(question)
        having = self._having(subtopology, question.partitions)
        copies = having.pop(_STANDBY, {})
        tasks = _merged(having.values())
        if not copies:
            return self._ask_these(tasks, question)
        # Two hosts of one application may have a task and its copy: the copy is asked where nobody
        # runs the task, or whoever does gives no answer.
        running = _partitions(having.get(_RUNNING, {}))
        first = _merged([tasks, _only(copies, lambda partition: partition not in running)])
        within_ms = self._try_ms if running <= _partitions(copies) else None
        found = self._ask_these(first, question, within_ms, only_theirs=True)
        answered = {answer.partition for answer in found if answer.reason is None}
        left = _only(copies, lambda partition: partition in running - answered)
        return found + self._ask_these(left, question, only_theirs=True) if left else found

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        """More of an answer; see `Answering`."""
        thread, _, name = cursor.rpartition("/")
        question = AskNextPage(name, page_number, page_bytes)
        (page,) = self._all([thread], question)
        if page is None:
            raise StateStoreMigratedError(
                f"The rest of this answer is gone with stream thread {thread}, which closes, has "
                "ended or does not answer. Ask anew."
            )
        if isinstance(page, StreamsError):
            raise page
        assert isinstance(page, NextPage)
        return page if page.cursor is None else NextPage(page.page, f"{thread}/{page.cursor}")

    def close_cursor(self, cursor: str) -> None:
        """Nobody wants the rest; see `Answering`. Does not wait for the thread to know."""
        thread, _, name = cursor.rpartition("/")
        try:
            self._ask(thread, CloseCursor(name))
        except StreamsError as error:
            # What it had open goes with it, or after a while.
            logger.debug("the rest of an answer was not closed: %s", error)

    def offsets(self) -> Sequence[StoreOffset]:
        """How far all stores have read their changelogs."""
        answers = self._all(list(self._threads()), AskOffsets())
        return [each for answer in answers if isinstance(answer, tuple) for each in answer]

    def _ask_any(self, question: AskStore) -> Sequence[TaskAnswer]:
        """What the first thread says that has a global store as a whole: each has all of it."""
        states = {name: state for name, (state, _) in self._threads().items() if state in _ASKED}
        names = list(states)
        turn = next(self._turn) % max(1, len(names))
        names = sorted(
            names[turn:] + names[:turn], key=lambda name: states[name] is not ThreadState.RUNNING
        )
        failure: StreamsError | None = None
        for left, name in zip(reversed(range(len(names))), names, strict=True):
            # One that hangs must not use up the time of those that do not.
            (answer,) = self._all([name], question, self._try_ms if left else None)
            if isinstance(answer, ThreadAnswer) and answer.tasks:
                return [_at(name, task) for task in answer.tasks]
            if isinstance(answer, StreamsError):
                failure = answer
        return () if failure is None else [_failed(-1, failure)]

    def _ask_these(
        self,
        having: _Having,
        question: AskStore,
        within_ms: int | None = None,
        *,
        only_theirs: bool = False,
    ) -> list[TaskAnswer]:
        """What threads say of partitions that they have, or, unless it is only theirs that matter,
        of whatever they have by now."""
        questions = {
            name: replace(question, partitions=frozenset(partitions)) if only_theirs else question
            for name, partitions in having.items()
        }
        found: list[TaskAnswer] = []
        for name, answer in self._answers(questions, within_ms).items():
            match answer:
                case ThreadAnswer(tasks):
                    found += [_at(name, task) for task in tasks]
                case StreamsError() as error:
                    found += [_failed(partition, error) for partition in having[name]]
        return found

    def _having(self, subtopology: int, partitions: frozenset[int] | None) -> dict[str, _Having]:
        """The threads that have such tasks, as far as they have told, and whose, by the states of
        the tasks."""
        found: dict[str, dict[str, list[int]]] = {}
        for name, (state, tasks) in self._threads().items():
            if state not in _ASKED:
                continue
            for task_id, task in tasks.items():
                group, _, partition = task_id.partition("_")
                wanted = partitions is None or int(partition) in partitions
                if wanted and int(group) == subtopology:
                    role = _STANDBY if task.standby else task.state
                    found.setdefault(role, {}).setdefault(name, []).append(int(partition))
        return dict(found)

    def _all(
        self, names: Iterable[str], question: Question[Any], within_ms: int | None = None
    ) -> list[Any]:
        """The answer of each thread, or its error; None of one that cannot be reached in time."""
        return list(self._answers(dict.fromkeys(names, question), within_ms).values())

    def _answers(
        self, questions: Mapping[str, Question[Any]], within_ms: int | None
    ) -> dict[str, Any]:
        """The same by thread, each of which is asked its own question."""
        within_ms = self._answer_ms if within_ms is None else within_ms
        latest = time.monotonic() + within_ms / 1_000
        # All are asked before one is waited for, so that those who hang hold up nobody else.
        asked = {name: self._post(name, question) for name, question in questions.items()}
        return {name: _answer_of(reply, latest - time.monotonic()) for name, reply in asked.items()}

    def _post(self, name: str, question: Question[Any]) -> Future[Any] | None:
        try:
            return self._ask(name, question)
        except ThreadUnavailableError:
            return None


def _answer_of(reply: Future[Any] | None, within_s: float) -> Any:
    if reply is None:
        return None
    try:
        return reply.result(max(0.0, within_s))
    except ThreadUnavailableError:
        return None
    except StreamsError as error:
        return error
    except TimeoutError:
        # Whatever comes now is of no use to anybody.
        reply.cancel()
        return None


def _merged(several: Iterable[_Having]) -> _Having:
    found: dict[str, list[int]] = {}
    for having in several:
        for name, partitions in having.items():
            found.setdefault(name, []).extend(partitions)
    return found


def _only(having: _Having, wanted: Callable[[int], bool]) -> _Having:
    found = {name: [each for each in mine if wanted(each)] for name, mine in having.items()}
    return {name: mine for name, mine in found.items() if mine}


def _partitions(having: _Having) -> set[int]:
    return {partition for partitions in having.values() for partition in partitions}


def _at(thread: str, task: TaskAnswer) -> TaskAnswer:
    return task if task.cursor is None else task._replace(cursor=f"{thread}/{task.cursor}")


def _failed(partition: int, error: StreamsError) -> TaskAnswer:
    return TaskAnswer(
        partition,
        "",
        reason=FailureReason.STORE_EXCEPTION,
        message=f"{error} Ask again.",
        retriable=error.retriable,
    )
