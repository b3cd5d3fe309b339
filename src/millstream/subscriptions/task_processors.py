"""Task processors: functions, coroutine functions, and classes with a lifecycle."""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final

from millstream.async_checks import is_asynchronous, name_of, reject_generator
from millstream.errors import ConfigError, IllegalStateError, as_streams_error
from millstream.operators.concurrent.event_loop import event_loop
from millstream.record import TopicPartition
from millstream.subscriptions.processing_context import ProcessingContext, ProcessorCall

logger = logging.getLogger(__name__)

#: The timeout of `async` methods that open or close a processor.
_ASYNC_S: Final = 30.0
_METHODS: Final = ("open", "process", "close")


class Scope(enum.Enum):
    """The scope of a `TaskProcessor` instance.

    Example:
        >>> Scoped(TaskProcessor, Scope.UNIT).scope.value
        'unit'
    """

    #: One instance per thread of the subscription. Each thread is a separate process.
    SUBSCRIPTION = "subscription"
    #: One instance per topic partition.
    PARTITION = "partition"
    #: One instance per unit: each of the `partition_concurrency` threads of a partition.
    UNIT = "unit"


class TaskProcessor:
    """A processor with a lifecycle.

    Override `process`, and `open` and `close` if needed. `process` may be `async def`; in that
    case, so may `open` and `close`. Semantics: Decaton's `DecatonProcessor`.

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
            place: the partition of the tasks; None for tasks of all partitions.
        """

    def process(self, context: ProcessingContext, task: Any) -> Any:
        """Process a task."""
        raise NotImplementedError

    def close(self) -> Any:
        """Called after the last task."""


@dataclass(frozen=True)
class Scoped:
    """A supplier of `TaskProcessor` instances and their scope.

    Args:
        supplier: creates an instance; a class without parameters, or a function.
        scope: which tasks share an instance.

    Example:
        >>> Scoped(TaskProcessor).scope.value
        'subscription'
    """

    supplier: Callable[[], TaskProcessor]
    scope: Scope = Scope.SUBSCRIPTION

    @property
    def is_async(self) -> bool:
        """Whether the supplier is a class with an asynchronous `process`."""
        supplier = self.supplier
        return isinstance(supplier, type) and is_asynchronous(getattr(supplier, "process", None))


#: The types that a subscription accepts as a processor.
ProcessorLike = Callable[..., Any] | Scoped | type[TaskProcessor]


@dataclass(frozen=True)
class ProcessorChain:
    """The processors of a subscription, each called by its predecessor."""

    parts: tuple[Callable[..., Any] | Scoped, ...]
    #: Whether any of them is asynchronous; if so, all run on the event loop.
    is_async: bool

    @staticmethod
    def of(processor: ProcessorLike | Sequence[ProcessorLike]) -> ProcessorChain:
        """Create the chain from the processors that a user passed.

        Raises:
            ConfigError: there is no processor, or an object is not a processor.
            TypeError: a processor is a generator function, whose code would never run.
        """
        given: list[ProcessorLike] = []
        if isinstance(processor, Sequence):
            given.extend(processor)
        else:
            given.append(processor)
        if not given:
            raise ConfigError("A subscription needs a processor.")
        parts = tuple(map(_checked_part, given))
        return ProcessorChain(parts, any(map(_is_async, parts)))

    def __post_init__(self) -> None:
        if self.is_async and any(
            isinstance(part, Scoped) and part.scope is Scope.UNIT for part in self.parts
        ):
            raise ConfigError(
                "Scope.UNIT creates one processor per thread, but async processors do not run on "
                "separate threads. Use Scope.PARTITION."
            )


class _ProcessorSlot:
    """A slot for one processor.

    The first thread that needs the processor creates it; other threads wait.
    """

    __slots__ = ("is_closed", "lock", "processor")

    def __init__(self) -> None:
        self.processor: TaskProcessor | None = None
        self.is_closed = False
        #: Held during creation, which may take long; never acquired by `close`.
        self.lock = threading.Lock()


class ProcessorInstances:
    """The open processors of a chain, for all partitions of a subscription thread.

    Thread-safe: the units of a partition create their processors concurrently.
    """

    def __init__(self, chain: ProcessorChain) -> None:
        self._chain = chain
        self._lock = threading.Lock()
        self._slots: dict[tuple[int, Hashable], _ProcessorSlot] = {}

    def calls(self, partition: TopicPartition, unit: Hashable) -> tuple[ProcessorCall, ...]:
        """Return the processor calls for a unit of a partition.

        New processors are created and opened.

        Raises:
            IllegalStateError: a processor was closed while it was being created.
        """
        return tuple(
            self._processor_for(index, part, partition, unit).process
            if isinstance(part, Scoped)
            else part
            for index, part in enumerate(self._chain.parts)
        )

    def close_partition(self, partition: TopicPartition) -> None:
        self._close(lambda scope: isinstance(scope, tuple) and scope[0] == partition)

    def close_units(self, partition: TopicPartition) -> None:
        """Close the processors of all units. Called before the number of units changes."""
        self._close(lambda scope: isinstance(scope, tuple) and scope[:-1] == (partition,))

    def close(self) -> None:
        self._close(lambda _: True)

    def _processor_for(
        self, index: int, part: Scoped, partition: TopicPartition, unit: Hashable
    ) -> TaskProcessor:
        scope: Hashable = None
        if part.scope is Scope.PARTITION:
            scope = (partition,)
        elif part.scope is Scope.UNIT:
            scope = (partition, unit)
        slot = self._slots.get((index, scope))
        if slot is None:
            with self._lock:
                slot = self._slots.setdefault((index, scope), _ProcessorSlot())
        if slot.processor is not None:
            return slot.processor
        with slot.lock:
            if slot.processor is None:
                self._open(slot, part, None if scope is None else partition)
            assert slot.processor is not None
            return slot.processor

    def _open(self, slot: _ProcessorSlot, part: Scoped, partition: TopicPartition | None) -> None:
        if slot.is_closed:
            raise IllegalStateError("The partition was released, and its processors are closed.")
        made = part.supplier()
        _check_methods(made)
        _wait_for(made.open(partition))
        with self._lock:
            if not slot.is_closed:
                slot.processor = made
                return
        _close_processor(made)
        raise IllegalStateError(f"{type(made).__name__} was closed while it was being opened.")

    def _close(self, which: Callable[[Hashable], bool]) -> None:
        with self._lock:
            closed = [self._slots.pop(key) for key in list(self._slots) if which(key[1])]
            for slot in closed:
                # A processor under construction is closed by the thread that creates it.
                slot.is_closed = True
            closing = [slot.processor for slot in closed if slot.processor is not None]
        for each in closing:
            _close_processor(each)


def _close_processor(processor: TaskProcessor) -> None:
    try:
        _wait_for(processor.close())
    except Exception as error:
        logger.warning("%s", as_streams_error(f"Closing {type(processor).__name__}", error))


def _wait_for(result: Any) -> None:
    """Wait for an `async` method of a processor.

    The method runs on the event loop, like the processor's tasks.
    """
    if isawaitable(result):
        asyncio.run_coroutine_threadsafe(_awaited(result), event_loop()).result(_ASYNC_S)


async def _awaited(result: Awaitable[Any]) -> None:
    await result


def _check_methods(made: object) -> None:
    """Raise a TypeError if a processor or its class has a generator method."""
    kind = made if isinstance(made, type) else type(made)
    for name in _METHODS:
        reject_generator(
            f"A subscription calls {kind.__qualname__} and", name, getattr(made, name, None)
        )


def _checked_part(given: ProcessorLike) -> Callable[..., Any] | Scoped:
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
        reject_generator("A subscription", "processor", given)
        return given
    raise ConfigError(
        f"A processor is a function of (context, task), a TaskProcessor, or Scoped(...), but got "
        f"{name_of(given)}."
    )


def _is_async(part: Callable[..., Any] | Scoped) -> bool:
    return part.is_async if isinstance(part, Scoped) else is_asynchronous(part)
