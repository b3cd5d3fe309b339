"""The exceptions of Millstream::

StreamsError
├── TopologyError                 the topology cannot be built or run as described
│   └── CopartitionError          topics that must have equal partition counts do not
├── ConfigError                   a setting is missing, unknown or out of range
├── SerializationError            a value could not be serialized or deserialized
│   └── BatchSerializationError   one element of a list failed; the elements before it are done
├── ProcessingError               user code failed on a record; `__cause__` is its exception
├── DataFrameError                a DataFrame function of the topology, or its query, failed
├── ProductionError               a record could not be written to Kafka
│   └── RecordRefusedError        the client rejected one record of a list; earlier ones are sent
├── IllegalStateError             a call is not allowed in the current state of the object
├── UnsupportedOperationError     the object never supports the operation
├── NullKeyError                  a store operation was called with None as the key
├── InvalidStateStoreError        a store is unknown, closed or hosted elsewhere
│   ├── UnknownStateStoreError
│   ├── StateStoreNotAvailableError      the store is restored, or its task starts
│   ├── StateStoreMigratedError          the store has moved to another instance
│   ├── InvalidStateStorePartitionError  the store has no such partition
│   ├── StreamsNotStartedError
│   └── StreamsStoppedError
├── TaskAssignmentError           the leader could not compute or announce an assignment
│   └── MissingSourceTopicError   a source topic does not exist
├── TaskMigratedError             another member owns the task now (control flow)
├── TaskCorruptedError            a task's local state must be rebuilt (control flow)
├── RebalanceInProgressError      a commit during a rebalance; commit again after it
├── LockError                     a state directory is in use by another process
├── GroupMembershipError          the consumer group rejects this member
├── ShutdownRequestedError        an instance requested the shutdown of the whole application
├── OffsetOutOfRangeError         the broker does not have an offset to read from
├── UnknownTopicError             a topic or partition to read or write does not exist
├── AccessDeniedError             the broker rejects the login, or the user lacks a permission
├── BrokerUnavailableError        no broker responded in time
├── EmbeddedKafkaError            the embedded broker did not start
└── SparkError                    Spark cannot schedule, ship or run a stream thread
    ├── NotEnoughSlotsError       there are fewer free task slots than stream threads
    ├── NotPicklableError         the topology contains an object that cannot be pickled
    ├── EnvironmentMismatchError  a worker's packages differ from the driver's
    └── ThreadUnavailableError    a stream thread is starting, restarting or does not respond
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from millstream.record import TaskId, TopicPartition

#: The maximum length of a quoted exception text or `repr`.
MAX_CHARS: Final = 4_000


class StreamsError(Exception):
    """Base class of all Millstream exceptions.

    The message explains what failed, the probable reason, and what to do. The fields repeat the
    location; each is None where it does not apply. Exceptions can be pickled, because they travel
    from workers to the driver.

    Args:
        declared_at: the file and line of the user's program that declared the node.
    """

    #: Whether the same call may succeed later without a change.
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
        """Return the location of the error: `task 0_1, topic in, partition 1, offset 42`.

        Ends with the line that declared the node, if known: `declared at shop.py:31`.
        """
        fields = [
            ("task", self.task_id),
            ("node", self.node),
            ("topic", self.topic),
            ("partition", self.partition),
            ("offset", self.offset),
        ]
        parts = [f"{name} {value}" for name, value in fields if value is not None]
        if self.declared_at:
            parts.append(f"declared at {self.declared_at}")
        return ", ".join(parts)

    def __str__(self) -> str:
        place = self.place()
        return f"{self.message} ({place})" if place else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors differ, so the copy is built from the fields without a constructor call.
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
    """The topology contradicts itself or the cluster.

    Never retriable: the program must change.
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
    """A setting is missing, unknown, out of range, or unsupported by Kafka clients."""


class SerializationError(StreamsError):
    """A value could not be serialized or deserialized."""


class BatchSerializationError(SerializationError):
    """One element of a list could not be serialized or deserialized.

    A handler may skip that element: append `done` and continue after `index`. This way, no user
    function is called twice for an element.

    Args:
        index: the position of the element in the list.
        done: the results of the elements before it.
    """

    def __init__(
        self, message: str, *, index: int, done: list[Any], topic: str | None = None
    ) -> None:
        super().__init__(message, topic=topic)
        self.index = index
        self.done = done

    def __reduce__(self) -> tuple[Any, ...]:
        # The results are useful only together with the batch; they may be large or not picklable.
        fields = {**self.__dict__, "done": []}
        return (_rebuild, (type(self), self.args, fields, self.__cause__))


class ProcessingError(StreamsError):
    """A user function or processor raised an exception, which is the `__cause__`."""


class DataFrameError(StreamsError):
    """A DataFrame function (`transform_dataframe`) or its query failed.

    Raised in the driver. The message names the stage of the function and quotes Spark's error.
    """


class ProductionError(StreamsError):
    """A record could not be written to its topic."""


class RecordRefusedError(ProductionError):
    """The client rejected one record of a list, for example because it is too large.

    The records before it are being sent, the records after it are not. A handler may skip the
    rejected record: continue with the records after `index`.

    Args:
        index: the position of the record in the list.
        partition: the partition of the record, if the caller specified it.
    """

    def __init__(
        self, message: str, *, index: int, topic: str, partition: int | None = None
    ) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.index = index


class IllegalStateError(StreamsError):
    """A call is not allowed in the current state."""


class NullKeyError(StreamsError, TypeError):
    """A store operation was called with None as the key."""


class UnsupportedOperationError(StreamsError):
    """An unsupported operation, such as a task's write to a global store.

    The object never supports the operation, regardless of its state.
    """


class InvalidStateStoreError(StreamsError):
    """A state store is closed, being restored, hosted elsewhere, or of another type.

    Attributes:
        retry_after_ms: the time after which a retry is useful, in milliseconds; None if waiting
            alone does not help.
    """

    retry_after_ms: int | None = None


class UnknownStateStoreError(InvalidStateStoreError):
    """The topology has no store with this name."""


class StateStoreNotAvailableError(InvalidStateStoreError):
    """The store is being restored, or its task is about to start. Retry shortly."""

    retriable = True
    retry_after_ms: int | None = 500


class StateStoreMigratedError(InvalidStateStoreError):
    """The store has moved, or is moving. A retry reaches the new host."""

    retriable = True
    retry_after_ms: int | None = 500


class InvalidStateStorePartitionError(InvalidStateStoreError):
    """The store has no such partition."""


class StreamsNotStartedError(InvalidStateStoreError):
    """The application has not been started. Retry after `start()`."""

    retriable = True


class StreamsStoppedError(InvalidStateStoreError):
    """The application has stopped or is stopping, and accepts no queries."""


class TaskAssignmentError(StreamsError):
    """The group's leader could not produce an assignment."""


class MissingSourceTopicError(TaskAssignmentError):
    """A topic that the topology reads does not exist on the cluster."""


class TaskMigratedError(StreamsError):
    """Another member owns the task now.

    The work since the last commit is not committed.
    """

    retriable = True


class RebalanceInProgressError(StreamsError):
    """The broker accepts no commits during a rebalance; nothing was committed."""

    retriable = True


class TaskCorruptedError(StreamsError):
    """The local state of some tasks is corrupted and must be deleted and restored."""

    retriable = True

    def __init__(self, message: str, *, task_ids: Iterable[TaskId]) -> None:
        super().__init__(message)
        self.task_ids: frozenset[TaskId] = frozenset(task_ids)


class LockError(StreamsError):
    """A state directory is locked by another process until that process ends."""

    retriable = True


class GroupMembershipError(StreamsError):
    """The group rejects this member: fenced, not authorized, or the wrong group type."""


class ShutdownRequestedError(StreamsError):
    """An application instance requested that all instances shut down (KIP-671)."""


class OffsetOutOfRangeError(StreamsError):
    """An offset to read from does not exist, or no longer exists.

    The affected partitions are not read again until they are unassigned and reassigned.

    Args:
        offsets: the missing offset of each affected partition. The first entry is also in the
            fields `topic`, `partition` and `offset`.
    """

    def __init__(self, message: str, *, offsets: Mapping[TopicPartition, int]) -> None:
        (topic, partition), offset = next(iter(offsets.items()))
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.offsets: Mapping[TopicPartition, int] = dict(offsets)


class UnknownTopicError(StreamsError):
    """A topic or partition to read or write does not exist."""


class AccessDeniedError(StreamsError):
    """The broker rejects the login, or the user lacks a permission."""


class BrokerUnavailableError(StreamsError):
    """No broker responded in time."""

    retriable = True


class EmbeddedKafkaError(StreamsError):
    """The embedded broker could not be downloaded or started, or rejected a request."""


class SparkError(StreamsError):
    """Spark could not schedule, ship or run a stream thread."""


class NotEnoughSlotsError(SparkError):
    """The Spark session has fewer free task slots than there are stream threads.

    Args:
        slots: the number of tasks that the session can run concurrently.
    """

    def __init__(self, message: str, *, slots: int, needed: int) -> None:
        super().__init__(message)
        self.slots = slots
        self.needed = needed


class NotPicklableError(SparkError):
    """The topology contains an object that cannot be pickled for Spark's workers.

    Args:
        path: the references from the node or the thread to the object.
        node: the name of the processor node on that path, if any.
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
        differences: the name, the driver's version and the worker's version of each package that
            differs. The version is None where the package is not installed.
    """

    def __init__(
        self, message: str, *, differences: Iterable[tuple[str, str | None, str | None]] = ()
    ) -> None:
        super().__init__(message)
        self.differences: tuple[tuple[str, str | None, str | None], ...] = tuple(differences)


class ThreadUnavailableError(SparkError):
    """A stream thread is (re)starting, has ended, or did not respond in time."""

    retriable = True


def as_streams_error(action: str, error: BaseException, advice: str = "") -> StreamsError:
    """Return `error`, wrapped in a `StreamsError` unless it already is one."""
    if isinstance(error, StreamsError):
        return error
    failure = StreamsError(f"{action} failed: {summary_of(error)}.{advice}")
    failure.__cause__ = error
    return failure


def text_of(error: BaseException) -> str:
    """Return the text of any exception, at most `MAX_CHARS` characters. Never raises.

    The text of a user's exception may have any size, and its `__str__` may fail. A JVM exception
    fetches its text from the JVM, which may have exited.
    """
    return _bounded(lambda: str(error), error)


def repr_of(value: object) -> str:
    """Return the `repr` of any object, at most `MAX_CHARS` characters. Never raises."""
    return _bounded(lambda: repr(value), value)


def summary_of(error: BaseException) -> str:
    """Return the class and text of any exception: `ValueError: no such item`.

    Never raises.
    """
    return f"{type(error).__name__}: {text_of(error)}"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of any exception, with its causes. Never raises."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as failure:
        # Formatting reads attributes of user exceptions and of their causes.
        return f"{summary_of(error)} (no traceback: {summary_of(failure)})"


def add_note(error: BaseException, note: str) -> None:
    """Add a note to any exception that supports notes."""
    with suppress(Exception):
        error.add_note(note)


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of any exception; none if its class does not support notes."""
    with suppress(Exception):
        return list(map(str, getattr(error, "__notes__", ())))
    return []


def _bounded(make: Callable[[], str], shown: object) -> str:
    try:
        text = make()
    except Exception as failure:
        if isinstance(failure, OSError) or type(failure).__module__.startswith("py4j."):
            return "the JVM has ended, so the reason is not available"
        return (
            f"<{type(shown).__name__} without a text: its method raised {type(failure).__name__}>"
        )
    if len(text) > MAX_CHARS:
        return f"{text[:MAX_CHARS]}… ({len(text)} characters)"
    # A slice drops the attributes of a subclass of str.
    return text[:]
