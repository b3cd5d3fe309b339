"""The context of a task, passed to its processors."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from types import CoroutineType
from typing import Any, Final, Protocol

from millstream.async_checks import checked_effect, is_unstarted
from millstream.clock import Clock
from millstream.durations import milliseconds
from millstream.errors import IllegalStateError
from millstream.operators.record_batch import Batch
from millstream.record import Headers, TopicPartition
from millstream.serdes import Serde
from millstream.subscriptions.task_completion import (
    Completion,
    DeferralHost,
    TaskDeferral,
    TimeoutAnswer,
    already_completed,
)
from millstream.subscriptions.tasks.decaton_metadata import DecatonMetadata
from millstream.subscriptions.tasks.task_extraction import DecatonTask

#: Held while the first completion of a task is created, because several threads may push the task.
_DEFERRAL_LOCK: Final = threading.Lock()

#: A call of a processor with a context and a task.
ProcessorCall = Callable[["ProcessingContext", Any], Any]


class TaskHost(DeferralHost, Protocol):
    """The operations of a partition that contexts need."""

    clock: Clock
    subscription_id: str
    #: The serde of keys; None for bytes.
    key_serde: Serde[Any] | None
    #: Whether the subscription has a retry topic.
    can_retry: bool

    @property
    def deferred_timeout_ms(self) -> int | None:
        """The default timeout of deferred tasks; None for no timeout."""

    def task_completed(self, context: ProcessingContext) -> None:
        """Handle the completion of a deferred task after its processor has returned."""

    def enter(self) -> bool:
        """Begin processing a deferred task. Returns whether this is still allowed.

        If so, `leave` must be called afterwards.
        """

    def leave(self) -> None: ...
    def count(self, name: str, by: int) -> None: ...


class TaskTrace(Protocol):
    """The trace of one task. Called by several threads, but never concurrently.

    Semantics: Decaton's `RecordTraceHandle`.

    Example:
        >>> class Printed:
        ...     def processing(self):
        ...         return contextlib.nullcontext()
        ...     def completed(self, outcome, error):
        ...         print("it is", outcome)
        ...     def retry_headers(self):
        ...         return ()
    """

    def processing(self) -> AbstractContextManager[Any]:
        """Return a context manager around the call of the processors.

        It is entered and exited on the processor's thread, and spans the whole call if the
        processors are `async`; otherwise it ends when the first processor returns.
        """

    def completed(self, outcome: str, error: BaseException | None) -> None:
        """Called when the task is completed.

        The task then no longer holds back the commit of its offset.

        Args:
            outcome: "complete", "retry" or "fail".
            error: the exception if the task failed, otherwise usually None.
        """

    def retry_headers(self) -> Headers:
        """Return headers to add to the retried record.

        They replace headers of the same names.
        """


class ProcessingContext:
    """A task being processed: its record, and the operations on it.

    Only valid during the call of the processor: copy any data that you need later.

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
        "_requested",
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
        host: TaskHost,
        batch: Batch,
        index: int,
        task: DecatonTask[Any],
        calls: tuple[ProcessorCall, ...],
        taken_ns: int,
    ) -> None:
        self._host = host
        self._calls = calls
        self._next = 1
        #: The combined completions of the task; None if it was not deferred.
        self._deferral: TaskDeferral | None = None
        #: The operation called on this context: "deferred" or "retry".
        self._requested: str | None = None
        #: Coroutines that `push` returned and that must be awaited.
        self._pushed: list[CoroutineType[Any, Any, Any]] | None = None
        #: The location of the record.
        self.batch: Batch = batch
        self.index: int = index
        #: The metadata, the deserialized task, and its bytes.
        self.metadata: DecatonMetadata
        self.task: Any
        self.payload: bytes
        self.metadata, self.task, self.payload = task
        #: The outcome: "complete", "retry" or "fail"; None while the task is not completed.
        self.outcome: str | None = None
        #: The error of a failed task.
        self.error: BaseException | None = None
        #: The trace; None without tracing.
        self.trace: TaskTrace | None = None
        #: Whether the task is complete when its processor returns, because no operation was called.
        self.is_plain: bool = True
        #: When the task was taken or, if it had to wait for its scheduled time or the rate limit,
        #: when it could start; and how long its processor took.
        self.taken_ns: int = taken_ns
        self.took_ns: int = 0

    @property
    def whole(self) -> ProcessingContext:
        """The context of the first processor, which collects the outcome of the task."""
        return self

    @property
    def host(self) -> TaskHost:
        """The partition; for batching processors."""
        return self._host

    @property
    def further(self) -> tuple[ProcessorCall, ...]:
        """The processors after the current one; for batching processors."""
        return self._calls[self._next :]

    @property
    def subscription_id(self) -> str:
        """The name of the subscription."""
        return self._host.subscription_id

    @property
    def key(self) -> Any:
        """The record's key, deserialized with the subscription's `key` serde, if any.

        The key is deserialized on access: processors that do not access it accept keys of any
        format.

        Raises:
            SerializationError: the key cannot be deserialized.
        """
        raw, serde = self.raw_key, self._host.key_serde
        return raw if serde is None else serde.deserialize(self.place.topic, raw)

    @property
    def raw_key(self) -> bytes | None:
        """The bytes of the record's key.

        Tasks with equal key bytes are processed one after the other.
        """
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
        """The topic partition of the record: for a retried task, that of the retry topic."""
        place = self.batch.origin.place(self.batch.rows[self.index])
        assert place is not None
        return place

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self.batch.origin.offsets[self.batch.rows[self.index]]

    def describe(self) -> str:
        """Describe the task for messages."""
        place = self.place
        return f"the task of topic {place.topic}, partition {place.partition}, offset {self.offset}"

    def call(self, calls: tuple[ProcessorCall, ...]) -> Any:
        """Call the first processor and return its result."""
        self._calls = calls
        return calls[0](self, self.task)

    def push(self, task: Any) -> Any:
        """Push a task to the next processor of the chain.

        Args:
            task: the task, possibly transformed.

        Returns:
            The result of the next processor; a coroutine if it is `async`. If the coroutine is not
            awaited before the pushing processor returns, the task fails, because it was never
            processed.

        Raises:
            IllegalStateError: there is no next processor.
        """
        position = self._next
        if position >= len(self._calls):
            raise IllegalStateError(
                "The last processor of a subscription pushed a task, but there is no next one."
            )
        result = self._calls[position](PushedContext(self, position + 1), task)
        if result is not None and is_unstarted(result):
            self._track_coroutine(result)
        return result

    def _track_coroutine(self, result: Any) -> None:
        if not isinstance(result, CoroutineType):
            # Generators, asynchronous or not, cannot be awaited.
            checked_effect(result)
            return
        self.is_plain = False
        if self._pushed is None:
            self._pushed = []
        self._pushed.append(result)

    def _unawaited_error(self) -> BaseException | None:
        """Return an error if the result of a push was not awaited; None otherwise."""
        pushed, self._pushed = self._pushed or (), None
        # A deferred task is completed explicitly, and the coroutine may be awaited later.
        if self._deferral is not None:
            return None
        unstarted = [
            each for each in pushed if inspect.getcoroutinestate(each) == inspect.CORO_CREATED
        ]
        if not unstarted:
            return None
        names = ", ".join(dict.fromkeys(each.__qualname__ for each in unstarted))
        for each in unstarted:
            each.close()
        return TypeError(
            f"The task was pushed to {names}, which is asynchronous, but the result of push() was "
            "not awaited, so the task was not processed. Write `await context.push(task)` in an "
            "`async def` function, or return the result of push()."
        )

    def defer_completion(
        self,
        timeout: timedelta | None = None,
        on_timeout: Callable[[Completion], TimeoutAnswer] | None = None,
    ) -> Completion:
        """Defer the completion of the task beyond the return of its processor.

        The offset is not committed until completion. The next task of the key starts when the
        processor returns. Each pushed task can be deferred separately: the whole task is complete
        when all pushed tasks are; it fails if any of them fails, and is otherwise retried if any of
        them is retried.

        Args:
            timeout: how long after the return of the processor the task may stay uncompleted before
                it fails; by default `deferred_complete_timeout_ms`.
            on_timeout: called on timeout to decide the outcome; runs on the polling thread, so it
                must not block.

        Raises:
            IllegalStateError: this context has already deferred the task, or the task goes to the
                retry topic or is already completed.
        """
        if self._requested == "deferred":
            raise IllegalStateError("The completion of this task was already deferred.")
        if self._requested is not None:
            raise IllegalStateError("This task goes to the retry topic and cannot be deferred.")
        if timeout is None:
            timeout_ms = self._host.deferred_timeout_ms
        else:
            timeout_ms = milliseconds("defer_completion()", "timeout", timeout, min_ms=1)
        deferral = self.whole._add_deferral()
        self._requested = "deferred"
        completion = Completion(deferral, self._host.clock, timeout_ms, on_timeout)
        if timeout_ms is not None:
            deferral.start_timeout(completion)
        return completion

    def retry(self) -> None:
        """Send the task to the retry topic when its processor returns.

        Raises:
            IllegalStateError: the subscription has no retry topic (`retry=Retry(...)`), the task is
                already completed, or this context has deferred it; in the last case, use the
                `retry` method of its completion.
        """
        if not self._host.can_retry:
            raise no_retry_topic()
        if self._requested == "deferred":
            raise IllegalStateError(
                "The completion of this task was deferred: call retry() of the Completion that "
                "defer_completion() returned."
            )
        self.whole._request_retry()
        self._requested = "retry"

    def _request_retry(self) -> None:
        if self._deferral is not None and self._deferral.is_finished:
            raise already_completed()
        self.is_plain = False
        self.outcome = "retry"

    def _add_deferral(self) -> TaskDeferral:
        with _DEFERRAL_LOCK:
            if self._deferral is None:
                self._deferral = TaskDeferral(
                    self, self._host, lambda: self._host.task_completed(self)
                )
        self._deferral.add()
        self.is_plain = False
        return self._deferral

    def returned(self, error: BaseException | None) -> bool:
        """Handle the processor's return or error. Returns whether the task is completed."""
        if error is None and self._pushed is not None:
            error = self._unawaited_error()
        deferral = self._deferral
        if error is not None:
            if deferral is not None:
                deferral.processor_raised()
            self.is_plain = False
            self.outcome, self.error = "fail", error
            return True
        if deferral is None:
            if self.outcome is None:
                self.outcome = "complete"
            return True
        return deferral.processor_returned()


def no_retry_topic() -> IllegalStateError:
    return IllegalStateError(
        "There is no retry topic: pass retry=Retry(backoff=...) to the subscription."
    )


class PushedContext(ProcessingContext):
    """The context of the same task for a later processor of the chain.

    Several such contexts may be active at a time, each with its own remaining processors.
    """

    __slots__ = ("_whole",)

    def __init__(self, parent: ProcessingContext, after: int | None = None) -> None:
        whole = parent._whole if isinstance(parent, PushedContext) else parent
        task = DecatonTask(whole.metadata, whole.task, whole.payload)
        super().__init__(whole._host, whole.batch, whole.index, task, whole._calls, whole.taken_ns)
        self._whole: ProcessingContext = whole
        self._next = parent._next if after is None else after
        self.trace = whole.trace

    @property
    def whole(self) -> ProcessingContext:
        """The context of the first processor."""
        return self._whole

    def _track_coroutine(self, result: Any) -> None:
        self._whole._track_coroutine(result)
