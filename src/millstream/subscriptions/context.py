"""What a task's processor is given beside the task."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from types import CoroutineType
from typing import Any, Final, Protocol

from millstream.clock import Clock
from millstream.durations import milliseconds
from millstream.errors import IllegalStateError
from millstream.operators.batch import Batch
from millstream.record import Headers, TopicPartition
from millstream.serdes import Serde
from millstream.subscriptions.completion import Completion, TimeoutAnswer
from millstream.subscriptions.deferral import TaskDeferral, ended
from millstream.subscriptions.tasks.extraction import DecatonTask
from millstream.unawaited import checked_effect, is_unstarted

#: While the first completion of a task is made: several threads may push it.
_MAKING: Final = threading.Lock()

#: Calls the processor after one, with a context and a task.
Next = Callable[["ProcessingContext", Any], Any]


class Host(Protocol):
    """The partition at work, as far as contexts need it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def subscription_id(self) -> str:
        """The name of the subscription."""
        ...

    @property
    def key_serde(self) -> Serde[Any] | None:
        """What decodes keys; None where they stay bytes."""
        ...

    @property
    def can_retry(self) -> bool:
        """Whether there is a retry topic."""
        ...

    @property
    def deferred_timeout_ms(self) -> int | None:
        """After how long a deferred task has to be completed, unless its processor says so."""
        ...

    def keep(self, completion: Completion) -> None:
        """Look after its deadline."""
        ...

    def landed(self, context: ProcessingContext) -> None:
        """A deferred task whose processor has returned is done."""
        ...

    def leaked(self) -> None:
        """A completion was thrown away."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it is to be completed by somebody: not once its partition is being given up."""
        ...

    def enter(self) -> bool:
        """A deferred task is about to be processed further; whether it still may. If so, `leave`
        follows."""
        ...

    def leave(self) -> None:
        """The processing has returned."""
        ...

    def count(self, name: str, by: int) -> None:
        """Add to a counter."""
        ...


class Trace(Protocol):
    """The trace of a task; `subscriptions.tracing` says more."""

    def processing(self) -> AbstractContextManager[Any]: ...

    def completed(self, outcome: str, error: BaseException | None) -> None: ...

    def retry_headers(self) -> Headers: ...


class ProcessingContext:
    """One task on its way: where it came from, and what may be done with it.

    Belongs to the processor's call: what is needed later, keep in variables of your own.

    Semantics: Decaton's `ProcessingContext`.

    Example:
        >>> def send(context, task):
        ...     if task["urgent"]:
        ...         context.push(task["text"])
        ...     elif context.metadata.retry_count < 3:
        ...         context.retry()
        ...     else:
        ...         completion = context.defer_completion(timeout=timedelta(minutes=1))
        ...         pool.submit(deliver, task).add_done_callback(lambda _: completion.complete())
    """

    __slots__ = (
        "_calls",
        "_deferral",
        "_host",
        "_next",
        "_pushed",
        "_said",
        "batch",
        "error",
        "index",
        "is_plain",
        "metadata",
        "outcome",
        "payload",
        "taken_ns",
        "task",
        "took_ns",
        "trace",
    )

    def __init__(
        self,
        host: Host,
        batch: Batch,
        index: int,
        task: DecatonTask[Any],
        calls: tuple[Next, ...],
        taken_ns: int,
    ) -> None:
        self._host = host
        self._calls = calls
        self._next = 1
        #: What all completions of the task land in; None without one.
        self._deferral: TaskDeferral | None = None
        #: What was said of the task with this context: that it is "deferred", or goes to "retry".
        self._said: str | None = None
        #: What pushing has given that is to be awaited.
        self._pushed: list[CoroutineType[Any, Any, Any]] | None = None
        #: Where the subscription has the record.
        self.batch = batch
        self.index = index
        #: The task as it was decoded; when it was made, by whom, how often it was tried; its bytes.
        self.metadata, self.task, self.payload = task
        #: What becomes of it: "complete", "retry" or "fail"; None while that is open.
        self.outcome: str | None = None
        #: What it failed with.
        self.error: BaseException | None = None
        #: Its trace, if there is one.
        self.trace: Trace | None = None
        #: Whether nothing was asked for: it is complete when its processor has returned.
        self.is_plain = True
        #: When it was taken or, if it had to wait for its time or the rate, when it could begin;
        #: and how long its processor took.
        self.taken_ns = taken_ns
        self.took_ns = 0

    @property
    def whole(self) -> ProcessingContext:
        """The context of the first processor, which all of the task lands in."""
        return self

    @property
    def host(self) -> Host:
        """The partition at work; for processors that gather tasks."""
        return self._host

    @property
    def further(self) -> tuple[Next, ...]:
        """The processors after the one that was given this; for those that gather tasks."""
        return self._calls[self._next :]

    @property
    def subscription_id(self) -> str:
        """The name of the subscription."""
        return self._host.subscription_id

    @property
    def key(self) -> Any:
        """The record's key, decoded by the subscription's `key=`; bytes if it has none.

        It is decoded when it is read: a processor that does not read it gets tasks with keys of
        any format.

        Raises:
            SerializationError: the bytes are not of that format.
        """
        raw, serde = self.raw_key, self._host.key_serde
        return raw if serde is None else serde.deserialize(self.place.topic, raw)

    @property
    def raw_key(self) -> bytes | None:
        """The bytes of the record's key. Tasks with equal bytes are done one after the other."""
        key: bytes | None = self.batch.keys[self.index]
        return key

    @property
    def headers(self) -> Headers:
        """The record's headers."""
        return self.batch.headers_of(self.index)

    @property
    def timestamp_ms(self) -> int:
        """The record's timestamp."""
        return self.batch.timestamps[self.index]

    @property
    def place(self) -> TopicPartition:
        """The topic partition that it was read from: the retry topic's, for a retried task."""
        place = self.batch.origin.place(self.batch.rows[self.index])
        assert place is not None
        return place

    @property
    def offset(self) -> int:
        """The record's offset there."""
        return self.batch.origin.offsets[self.batch.rows[self.index]]

    def describe(self) -> str:
        """Which task it is, for people."""
        place = self.place
        return f"the task of topic {place.topic}, partition {place.partition}, offset {self.offset}"

    def call(self, calls: tuple[Next, ...]) -> Any:
        """Call the first processor; what it returns."""
        self._calls = calls
        return calls[0](self, self.task)

    def push(self, task: Any) -> Any:
        """Hand a task to the next processor of the chain.

        Args:
            task: it, or what was made of it.

        Returns:
            What the next processor returns: to be awaited where that is `async`. If it never is,
            before the processor that pushed returns, the task fails, since it was never worked on.

        Raises:
            IllegalStateError: there is no next one.
        """
        position = self._next
        if position >= len(self._calls):
            raise IllegalStateError(
                "The last processor of a subscription pushed a task: there is none after it."
            )
        result = self._calls[position](PushedContext(self, position + 1), task)
        if result is not None and is_unstarted(result):
            self._to_be_awaited(result)
        return result

    def _to_be_awaited(self, result: Any) -> None:
        if not isinstance(result, CoroutineType):
            # Generators, asynchronous or not, cannot be awaited.
            checked_effect(result)
            return
        self.is_plain = False
        if self._pushed is None:
            self._pushed = []
        self._pushed.append(result)

    def _unawaited_error(self) -> BaseException | None:
        """What is wrong if something was pushed to an `async` processor that nobody has awaited: it
        has not even begun."""
        pushed, self._pushed = self._pushed or (), None
        # Who defers the task says when it is done, and may have it awaited later.
        if self._deferral is not None:
            return None
        forgotten = [
            each for each in pushed if inspect.getcoroutinestate(each) == inspect.CORO_CREATED
        ]
        if not forgotten:
            return None
        names = ", ".join(dict.fromkeys(each.__qualname__ for each in forgotten))
        for each in forgotten:
            each.close()
        return TypeError(
            f"The task was pushed to {names}, which is asynchronous, and nobody has awaited what "
            "push() gave, so it was not worked on. Write `await context.push(task)` in an `async "
            "def` function, or return what push() gives."
        )

    def defer_completion(
        self,
        timeout: timedelta | None = None,
        on_timeout: Callable[[Completion], TimeoutAnswer] | None = None,
    ) -> Completion:
        """Let the task be completed later than its processor returns.

        Its offset is not committed before. The next task of the key begins when the processor
        returns. Of what was pushed each can be deferred by itself: the task is complete when all of
        that is, fails if any of it does, and else is retried if any of it is to be.

        Args:
            timeout: after how long it fails, counted from when the processor has returned; by
                default `deferred_complete_timeout_ms`.
            on_timeout: asked then what is to become of it; on the thread that polls, so it must not
                block.

        Raises:
            IllegalStateError: it was deferred by this context before, goes to the retry topic, or
                has ended.
        """
        if self._said == "deferred":
            raise IllegalStateError("The completion of this task was deferred before.")
        if self._said is not None:
            raise IllegalStateError("This task goes to the retry topic: nothing is left to defer.")
        if timeout is None:
            timeout_ms = self._host.deferred_timeout_ms
        else:
            timeout_ms = milliseconds("defer_completion()", "timeout", timeout, least_ms=1)
        deferral = self.whole._one_more_deferral()
        self._said = "deferred"
        completion = Completion(deferral, self._host.clock, timeout_ms, on_timeout)
        if timeout_ms is not None:
            deferral.let_run(completion)
        return completion

    def retry(self) -> None:
        """Let the task go to the retry topic when its processor returns, to be tried again later.

        Raises:
            IllegalStateError: the subscription has none (`retry=Retry(...)`), the task was deferred
                by this context, whose completion has such a method then, or it has ended.
        """
        if not self._host.can_retry:
            raise no_retry_topic()
        if self._said == "deferred":
            raise IllegalStateError(
                "The completion of this task was deferred: call retry() of what "
                "defer_completion() gave."
            )
        self.whole._ask_for_retry()
        self._said = "retry"

    def _ask_for_retry(self) -> None:
        if self._deferral is not None and self._deferral.is_over:
            raise ended()
        self.is_plain = False
        self.outcome = "retry"

    def _one_more_deferral(self) -> TaskDeferral:
        with _MAKING:
            if self._deferral is None:
                self._deferral = TaskDeferral(self, self._host, lambda: self._host.landed(self))
        self._deferral.add()
        self.is_plain = False
        return self._deferral

    def returned(self, error: BaseException | None) -> bool:
        """The processor has returned, or raised this; whether the task is done with it."""
        if error is None and self._pushed is not None:
            error = self._unawaited_error()
        deferral = self._deferral
        if error is not None:
            if deferral is not None:
                deferral.give_up()
            self.is_plain = False
            self.outcome, self.error = "fail", error
            return True
        if deferral is None:
            if self.outcome is None:
                self.outcome = "complete"
            return True
        return deferral.returned()


def no_retry_topic() -> IllegalStateError:
    """What a task meets that asks for a retry where nobody can give it one."""
    return IllegalStateError(
        "There is no retry topic: give the subscription retry=Retry(backoff=...)."
    )


class PushedContext(ProcessingContext):
    """The same task, as a processor further down the chain sees it: several of them may be at work
    at a time, each with those after it.

    Args:
        above: the one that it was pushed by.
        after: the position of the processor after it; by default as `above` has it.
    """

    __slots__ = ("_whole",)

    def __init__(self, above: ProcessingContext, after: int | None = None) -> None:
        whole = above._whole if isinstance(above, PushedContext) else above
        task = DecatonTask(whole.metadata, whole.task, whole.payload)
        super().__init__(whole._host, whole.batch, whole.index, task, whole._calls, whole.taken_ns)
        self._whole: ProcessingContext = whole
        self._next = above._next if after is None else after
        self.trace = whole.trace

    @property
    def whole(self) -> ProcessingContext:
        """The context of the first processor."""
        return self._whole

    def _to_be_awaited(self, result: Any) -> None:
        self._whole._to_be_awaited(result)
