"""Who works on tasks: functions, coroutine functions, and classes with a life of their own."""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final

from millstream.errors import ConfigError, IllegalStateError, as_streams_error
from millstream.operators.apart.event_loop import event_loop
from millstream.record import TopicPartition
from millstream.subscriptions.context import Next, ProcessingContext
from millstream.unawaited import is_asynchronous, name_of, refuse_generator

logger = logging.getLogger(__name__)

#: How long an `async` method that opens or closes a processor may take.
_ASYNC_S: Final = 30.0
_METHODS: Final = ("open", "process", "close")


class Scope(enum.Enum):
    """How many tasks share one `TaskProcessor`.

    Example:
        >>> Scoped(TaskProcessor, Scope.UNIT).scope.value
        'unit'
    """

    #: One for all tasks of a thread of the subscription, which is a process of its own.
    SUBSCRIPTION = "subscription"
    #: One for each topic partition.
    PARTITION = "partition"
    #: One for each of the `partition_concurrency` threads of a partition.
    UNIT = "unit"


class TaskProcessor:
    """A processor with a life of its own. Override `process`, and what else is needed.

    `process` may be `async def`; then `open` and `close` may be as well. Semantics: Decaton's
    `DecatonProcessor`.

    Example:
        >>> class Mailer(TaskProcessor):
        ...     def open(self, place):
        ...         self.connection = smtplib.SMTP("localhost")
        ...     def process(self, context, task):
        ...         self.connection.sendmail("shop@example.org", task["to"], task["text"])
        ...     def close(self):
        ...         self.connection.quit()
    """

    def open(self, place: TopicPartition | None) -> Any:
        """Called before the first task.

        Args:
            place: the partition whose tasks will come; None for those of all.
        """

    def process(self, context: ProcessingContext, task: Any) -> Any:
        """Work on a task."""
        raise NotImplementedError

    def close(self) -> Any:
        """Called after the last task."""


@dataclass(frozen=True)
class Scoped:
    """How the `TaskProcessor` of a subscription is made, and for how many tasks.

    Args:
        supplier: makes one; a class without parameters, or a function.
        scope: how many tasks share one.

    Example:
        >>> Scoped(TaskProcessor).scope.value
        'subscription'
    """

    supplier: Callable[[], TaskProcessor]
    scope: Scope = Scope.SUBSCRIPTION

    @property
    def is_async(self) -> bool:
        """Whether it is asynchronous, as far as a class tells."""
        supplier = self.supplier
        return isinstance(supplier, type) and is_asynchronous(getattr(supplier, "process", None))


#: What a subscription takes as a processor.
ProcessorLike = Callable[..., Any] | Scoped | type[TaskProcessor]


@dataclass(frozen=True)
class Chain:
    """The processors of a subscription, each called by the one before it.

    Args:
        parts: plain or coroutine functions of (context, task), or `Scoped`.
        is_async: whether any of them is asynchronous: then all run on the event loop.
    """

    parts: tuple[Callable[..., Any] | Scoped, ...]
    is_async: bool

    @staticmethod
    def of(processor: ProcessorLike | Sequence[ProcessorLike]) -> Chain:
        """The chain of what a user gives.

        Raises:
            ConfigError: nothing, or something that is no processor.
            TypeError: a generator function, whose code would never run.
        """
        given: list[ProcessorLike] = []
        if isinstance(processor, Sequence):
            given.extend(processor)
        else:
            given.append(processor)
        if not given:
            raise ConfigError("A subscription needs a processor.")
        parts = tuple(map(_part, given))
        return Chain(parts, any(map(_is_async, parts)))

    def __post_init__(self) -> None:
        if self.is_async and any(
            isinstance(part, Scoped) and part.scope is Scope.UNIT for part in self.parts
        ):
            raise ConfigError(
                "Scope.UNIT is one processor for each thread, and an async processor has none: "
                "take Scope.PARTITION."
            )


class _Life:
    """The place of one processor: whoever needs it first makes it, and others wait for that."""

    __slots__ = ("is_over", "lock", "processor")

    def __init__(self) -> None:
        self.processor: TaskProcessor | None = None
        self.is_over = False
        #: Held while it is made, which may take long: by nobody who closes.
        self.lock = threading.Lock()


class Instances:
    """The processors of a chain that live, for all partitions of one thread of the subscription.

    Usable from several threads: the units of a partition make what is theirs, beside each other.

    Args:
        chain: what they are made from.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._lock = threading.Lock()
        self._lives: dict[tuple[int, Hashable], _Life] = {}

    def calls(self, place: TopicPartition, unit: Hashable) -> tuple[Next, ...]:
        """What to call for the tasks of a unit of a partition: made and opened, where it is new.

        Raises:
            IllegalStateError: it was closed while it was made.
        """
        return tuple(
            self._made_for(index, part, place, unit).process if isinstance(part, Scoped) else part
            for index, part in enumerate(self._chain.parts)
        )

    def close_partition(self, place: TopicPartition) -> None:
        """Close those of a partition."""
        self._close(lambda scope: isinstance(scope, tuple) and scope[0] == place)

    def close_units(self, place: TopicPartition) -> None:
        """Close those of the units of a partition, of which there will be another number."""
        self._close(lambda scope: isinstance(scope, tuple) and scope[:-1] == (place,))

    def close(self) -> None:
        """Close all that are left."""
        self._close(lambda _: True)

    def _made_for(
        self, index: int, part: Scoped, place: TopicPartition, unit: Hashable
    ) -> TaskProcessor:
        scope: Hashable = None
        if part.scope is Scope.PARTITION:
            scope = (place,)
        elif part.scope is Scope.UNIT:
            scope = (place, unit)
        life = self._lives.get((index, scope))
        if life is None:
            with self._lock:
                life = self._lives.setdefault((index, scope), _Life())
        if life.processor is not None:
            return life.processor
        with life.lock:
            if life.processor is None:
                self._begin(life, part, None if scope is None else place)
            assert life.processor is not None
            return life.processor

    def _begin(self, life: _Life, part: Scoped, place: TopicPartition | None) -> None:
        if life.is_over:
            raise IllegalStateError("The processors of a partition that was given up are closed.")
        made = part.supplier()
        _check_methods(made)
        _finished(made.open(place))
        with self._lock:
            if not life.is_over:
                life.processor = made
                return
        _end(made)
        raise IllegalStateError(f"{type(made).__name__} was closed while it was opened.")

    def _close(self, which: Callable[[Hashable], bool]) -> None:
        with self._lock:
            gone = [self._lives.pop(key) for key in list(self._lives) if which(key[1])]
            for life in gone:
                # What is being made just now is closed by whoever makes it.
                life.is_over = True
            closing = [life.processor for life in gone if life.processor is not None]
        for each in closing:
            _end(each)


def _end(processor: TaskProcessor) -> None:
    try:
        _finished(processor.close())
    except Exception as error:
        logger.warning("%s", as_streams_error(f"Closing {type(processor).__name__}", error))


def _finished(result: Any) -> None:
    """Wait for an `async` method of a processor, which runs where its tasks do."""
    if isawaitable(result):
        asyncio.run_coroutine_threadsafe(_awaited(result), event_loop()).result(_ASYNC_S)


async def _awaited(result: Awaitable[Any]) -> None:
    await result


def _check_methods(made: object) -> None:
    """
    Raises:
        TypeError: a method of a processor, or of its class, is a generator function.
    """
    kind = made if isinstance(made, type) else type(made)
    for name in _METHODS:
        refuse_generator(
            f"A subscription calls {kind.__qualname__} and", name, getattr(made, name, None)
        )


def _part(given: ProcessorLike) -> Callable[..., Any] | Scoped:
    if isinstance(given, Scoped):
        if isinstance(given.supplier, type):
            _check_methods(given.supplier)
        return given
    if isinstance(given, type) and issubclass(given, TaskProcessor):
        _check_methods(given)
        return Scoped(given)
    if isinstance(given, TaskProcessor):
        _check_methods(given)
        return given.process
    if callable(given):
        refuse_generator("A subscription", "processor", given)
        return given
    raise ConfigError(
        f"A processor is a function of (context, task), a TaskProcessor, or Scoped(...), but got "
        f"{name_of(given)}."
    )


def _is_async(part: Callable[..., Any] | Scoped) -> bool:
    return part.is_async if isinstance(part, Scoped) else is_asynchronous(part)
