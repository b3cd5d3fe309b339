"""What can go wrong, as a tree::

StreamsError
├── TopologyError                 the topology cannot be built or run as described
│   └── CopartitionError          topics that must have equal partition counts do not
├── ConfigError                   a setting is missing, unknown or out of range
├── SerializationError            bytes ↔ object failed, or no serde was given
│   └── BatchSerializationError   one element of a list failed; those before it are done
├── ProcessingError               user code failed on a record; `__cause__` is what it raised
├── DataFrameError                a DataFrame function of the topology, or its query, failed
├── ProductionError               a record could not be written to Kafka
│   └── RecordRefusedError        one record of a list was refused at once; those before it are sent
├── IllegalStateError             a call that the object's present state does not allow
├── UnsupportedOperationError     what this object can never do, such as writing a global store
├── NullKeyError                  a store was given None where it needs a key
├── InvalidStateStoreError        a store that is unknown, closed or elsewhere
│   └── UnknownStateStoreError
├── TaskAssignmentError           the leader could not work out or announce an assignment
│   └── MissingSourceTopicError   a source topic does not exist
├── TaskMigratedError             another member owns the task now (control flow)
├── TaskCorruptedError            a task's local state must be rebuilt (control flow)
├── RebalanceInProgressError      a commit came while the group rebalances; try again after it
├── LockError                     a state directory is in use by another process
├── GroupMembershipError          the consumer group does not take this member, or not any more
├── ShutdownRequestedError        an instance asked that all of the application shut down
├── OffsetOutOfRangeError         an offset to read from is not, or no longer, on the broker
├── UnknownTopicError             a topic or partition that is read or written does not exist
├── AccessDeniedError             the broker refuses the login, or what the user may not do
├── BrokerUnavailableError        no broker answered in time
├── EmbeddedKafkaError            the broker for development did not start
└── SparkError                    Spark cannot place, ship or keep a stream thread
    ├── NotEnoughSlotsError
    ├── NotPicklableError         the topology holds something that cannot be shipped
    ├── EnvironmentMismatchError  a worker's packages differ from the driver's
    └── ThreadUnavailableError    a stream thread is starting, restarting or does not answer
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from millstream.record import TaskId, TopicPartition

#: How much of the text of an exception, or of another object, a message quotes.
MOST_CHARS: Final = 4_000


class StreamsError(Exception):
    """Root of everything that Millstream raises on purpose.

    The message says what failed, why probably, and what to do. The place is also kept as fields,
    each None where it does not apply. Survives pickling: errors travel from workers to the driver.

    Args:
        message: what failed, why, and what to do.
        task_id: the task it happened in.
        topic: the topic that was read or written.
        partition: the partition of that topic.
        offset: the offset of the record.
        node: the name of the processor node.
        declared_at: file and line of the user's program that declared the node.
    """

    #: Whether the same call may succeed later without anything being changed.
    retriable: bool = False

    def __init__(
        self,
        message: str,
        *,
        task_id: TaskId | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        node: str | None = None,
        declared_at: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.task_id = task_id
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.node = node
        self.declared_at = declared_at

    def place(self) -> str:
        """Where it happened, for example `task 0_1, topic in, partition 1, offset 42`.

        And which line of the program that is about, where it is known: `declared at shop.py:31`.
        """
        known = [
            ("task", self.task_id),
            ("node", self.node),
            ("topic", self.topic),
            ("partition", self.partition),
            ("offset", self.offset),
        ]
        told = [f"{name} {value}" for name, value in known if value is not None]
        if self.declared_at:
            told.append(f"declared at {self.declared_at}")
        return ", ".join(told)

    def __str__(self) -> str:
        place = self.place()
        return f"{self.message} ({place})" if place else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors differ, the fields do not: rebuild without calling one.
        return (_rebuild, (type(self), self.args, dict(self.__dict__), self.__cause__))


def _rebuild(
    kind: type[StreamsError],
    args: tuple[Any, ...],
    fields: dict[str, Any],
    cause: BaseException | None,
) -> StreamsError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    error.__cause__ = cause
    return error


class TopologyError(StreamsError, ValueError):
    """The topology contradicts itself or the cluster. Never retriable: the program must change.

    Args:
        message: what is wrong, why, and what to do.
        declared_at: file and line of the user's program that declared it, where that is known.
        topic: the topic concerned.
        node: the name of the node concerned.
    """

    def __init__(
        self,
        message: str,
        *,
        declared_at: str | None = None,
        topic: str | None = None,
        node: str | None = None,
    ) -> None:
        super().__init__(message, topic=topic, node=node, declared_at=declared_at)


class CopartitionError(TopologyError):
    """Topics that are joined or cogrouped have different partition counts."""


class ConfigError(StreamsError, ValueError):
    """A setting is missing, unknown, out of range, or cannot be honoured by the Kafka clients."""


class SerializationError(StreamsError):
    """Bytes could not be turned into an object or back, or a serde is missing."""


class BatchSerializationError(SerializationError):
    """One element of a list could not be serialized or deserialized.

    A handler may skip that element: append `done`, and go on with the elements after `index`. So
    no function of the user's is called twice for one element.

    Args:
        message: what was wrong with the element.
        index: its position in the list.
        done: the results for the elements before it.
        topic: the topic the serde was told.
    """

    def __init__(
        self, message: str, *, index: int, done: list[Any], topic: str | None = None
    ) -> None:
        super().__init__(message, topic=topic)
        self.index = index
        self.done = done

    def __reduce__(self) -> tuple[Any, ...]:
        # The results are of use only where the batch is; they may be large or not picklable.
        fields = {**self.__dict__, "done": []}
        return (_rebuild, (type(self), self.args, fields, self.__cause__))


class ProcessingError(StreamsError):
    """A function or processor of the user's raised; `__cause__` is what it raised."""


class DataFrameError(StreamsError):
    """A DataFrame function (`transform_dataframe`) or the query that runs it failed.

    Raised in the driver; the message names the function's stage and says what Spark says.
    """


class ProductionError(StreamsError):
    """A record could not be written to its topic."""


class RecordRefusedError(ProductionError):
    """The producer did not take one record of a list, for example because it is too large.

    The records before it are on their way, those after it are not. A handler may skip it: go on
    with the records after `index`.

    Args:
        message: why it was refused.
        index: its position in the list.
        topic: where it was to go.
        partition: the partition it was to go to, if that was said.
    """

    def __init__(
        self, message: str, *, index: int, topic: str, partition: int | None = None
    ) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.index = index


class IllegalStateError(StreamsError):
    """A call came in a state that does not allow it."""


class NullKeyError(StreamsError, TypeError):
    """A store was given None where it needs a key."""


class UnsupportedOperationError(StreamsError):
    """What this object can never do, such as writing to a global store from a task."""


class InvalidStateStoreError(StreamsError):
    """A state store that is closed, restoring, hosted elsewhere, or of another kind.

    Attributes:
        retry_after_ms: after how many milliseconds it is worth asking again; None if that alone
            does not help.
    """

    retry_after_ms: int | None = None


class UnknownStateStoreError(InvalidStateStoreError):
    """No store of that name is in the topology."""


class StateStoreNotAvailableError(InvalidStateStoreError):
    """The store is being restored, or its task is about to start. Ask again in a moment."""

    retriable = True
    retry_after_ms = 500


class StateStoreMigratedError(InvalidStateStoreError):
    """The store has moved, or is moving. Ask again: the next answer comes from its new place."""

    retriable = True
    retry_after_ms = 500


class InvalidStateStorePartitionError(InvalidStateStoreError):
    """The partition that was asked for is not where it was asked for, or there is none."""


class StreamsNotStartedError(InvalidStateStoreError):
    """The application has not been started. Ask again after `start()`."""

    retriable = True


class StreamsStoppedError(InvalidStateStoreError):
    """The application has ended, or is about to; it answers no queries any more."""


class TaskAssignmentError(StreamsError):
    """The group's leader could not produce an assignment."""


class MissingSourceTopicError(TaskAssignmentError):
    """A topic that the topology reads does not exist on the cluster."""


class TaskMigratedError(StreamsError):
    """Another member owns the task now: work since the last commit is not committed."""

    retriable = True


class RebalanceInProgressError(StreamsError):
    """The broker takes no commit until the rebalance under way is over; nothing was committed."""

    retriable = True


class TaskCorruptedError(StreamsError):
    """The local state of some tasks cannot be trusted and is to be wiped and rebuilt.

    Args:
        message: what was found.
        task_ids: the tasks concerned.
    """

    retriable = True

    def __init__(self, message: str, *, task_ids: Iterable[TaskId]) -> None:
        super().__init__(message)
        self.task_ids = frozenset(task_ids)


class LockError(StreamsError):
    """A state directory is locked by another process. The lock goes when that process goes."""

    retriable = True


class GroupMembershipError(StreamsError):
    """The consumer group refuses this member: fenced, not authorized, or of another kind."""


class ShutdownRequestedError(StreamsError):
    """An instance of the application asked that all of them shut down (KIP-671)."""


class OffsetOutOfRangeError(StreamsError):
    """Reading was to go on at offsets that partitions do not have, or no longer have.

    None of these partitions is read any further until it is unassigned and assigned anew.

    Args:
        message: why probably, and what to do.
        offsets: of each partition concerned the offset that it does not have. The first is also in
            the fields `topic`, `partition` and `offset`.
    """

    def __init__(self, message: str, *, offsets: Mapping[TopicPartition, int]) -> None:
        (topic, partition), offset = next(iter(offsets.items()))
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.offsets: Mapping[TopicPartition, int] = dict(offsets)


class UnknownTopicError(StreamsError):
    """A topic, or a partition of one, that is read or written does not exist."""


class AccessDeniedError(StreamsError):
    """The broker does not accept the login, or does not let this user do what was asked."""


class BrokerUnavailableError(StreamsError):
    """No broker of the bootstrap list answered in time."""

    retriable = True


class EmbeddedKafkaError(StreamsError):
    """The broker for development and tests could not be fetched or started."""


class SparkError(StreamsError):
    """Spark could not place, ship or keep a stream thread."""


class NotEnoughSlotsError(SparkError):
    """The Spark session has fewer free task slots than there are stream threads.

    Args:
        message: what was found.
        slots: how many tasks the session can run at a time.
        needed: how many stream threads there are.
    """

    def __init__(self, message: str, *, slots: int, needed: int) -> None:
        super().__init__(message)
        self.slots = slots
        self.needed = needed


class NotPicklableError(SparkError):
    """The topology holds an object that cannot be shipped to Spark's workers.

    Args:
        message: what was found.
        path: where the object is reached, from the node or the thread down to it.
        type_name: the type of the object.
        node: the name of the processor node on that path, if there is one.
    """

    def __init__(
        self, message: str, *, path: str = "", type_name: str = "", node: str | None = None
    ) -> None:
        super().__init__(message, node=node)
        self.path = path
        self.type_name = type_name


class EnvironmentMismatchError(SparkError):
    """A worker runs other versions of Python or of the libraries than the driver.

    Args:
        message: what was found.
        differences: for each package that differs its name, the driver's version and the worker's;
            None where it is not installed.
    """

    def __init__(
        self, message: str, *, differences: Iterable[tuple[str, str | None, str | None]] = ()
    ) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


class ThreadUnavailableError(SparkError):
    """A stream thread is starting, restarting, has ended, or did not answer in time."""

    retriable = True


def as_streams_error(what: str, error: BaseException, advice: str = "") -> StreamsError:
    """The error itself, or one that says what failed with it, and what to do."""
    if isinstance(error, StreamsError):
        return error
    failure = StreamsError(f"{what} failed: {summary_of(error)}.{advice}")
    failure.__cause__ = error
    return failure


def text_of(error: BaseException) -> str:
    """The text of any exception: never raises, and is at most `MOST_CHARS` long.

    The text of a user's exception may be of any size, and its `__str__` may fail. An exception of
    the JVM keeps its text there; when a machine stops, the JVM may have ended before.
    """
    return _bounded(lambda: str(error), error)


def repr_of(value: object) -> str:
    """The `repr` of any object: never raises, and is at most `MOST_CHARS` long."""
    return _bounded(lambda: repr(value), value)


def summary_of(error: BaseException) -> str:
    """Class and text of any exception: `ValueError: no such item`. Never raises."""
    return f"{type(error).__name__}: {text_of(error)}"


def traceback_of(error: BaseException) -> str:
    """The traceback of any exception, with its causes. Never raises."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as failure:
        # Attributes of the user's exceptions and of their causes are read on the way.
        return f"{summary_of(error)} (no traceback: {summary_of(failure)})"


def add_note(error: BaseException, note: str) -> None:
    """Add a note to any exception; nothing where its class does not take notes."""
    with suppress(Exception):
        error.add_note(note)


def notes_of(error: BaseException) -> list[str]:
    """The notes of any exception; none where its class does not take notes."""
    with suppress(Exception):
        return list(map(str, getattr(error, "__notes__", ())))
    return []


def _bounded(make: Callable[[], str], shown: object) -> str:
    try:
        text = make()
    except Exception as failure:
        if isinstance(failure, OSError) or type(failure).__module__.startswith("py4j."):
            return "the JVM that could tell why has ended"
        return (
            f"<{type(shown).__name__} without a text: its method raised {type(failure).__name__}>"
        )
    if len(text) > MOST_CHARS:
        return f"{text[:MOST_CHARS]}… ({len(text)} characters)"
    # Without what a subclass of str may have of its own.
    return text[:]
