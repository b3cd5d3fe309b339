"""The messages of the control connection.

They include hellos, reports, commands, replies and thread exits.

Message bodies are pickled with cloudpickle, because they may contain exceptions and other objects
of the user. Queries and their results, which are frequent, have a compact encoding. An object that
cannot be pickled or unpickled is replaced by a description, so that no report or error is lost
because of its content.
"""

from __future__ import annotations

import copy
import enum
import logging
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import cloudpickle

from millstream.errors import StreamsError, add_note, repr_of, summary_of, text_of, traceback_of
from millstream.runtime.queries.query_messages import CompactMessage, decode_compact, encode_compact
from millstream.runtime.thread_control import Report, ThreadFailed
from millstream.spark.connection.control_protocol import MAX_FRAME_BYTES

logger = logging.getLogger(__name__)

_MAX_TRACEBACK_CHARS: Final = 64 * 1024
#: The maximum pickled size of one exception. An error with all its causes stays far below the
#: maximum size of a message.
_MAX_EXCEPTION_BYTES: Final = 4 * 1024 * 1024
#: The maximum number of an error's causes that are sent.
_MAX_CAUSES: Final = 8
#: The header of a message: its type and number.
_MESSAGE: Final = struct.Struct(">Bq")
_NO_NUMBER: Final = -1
#: The first byte of every pickle. No compact encoding starts with this byte.
_PICKLE: Final = pickle.PROTO[0]
#: The maximum size of a message's data; the rest of a frame is for its other fields.
MAX_DATA_BYTES: Final = MAX_FRAME_BYTES - 64 * 1024


class Epoch(NamedTuple):
    """Identifies an attempt to run a stream thread.

    A later attempt compares as greater. `submission` counts the jobs that the driver submitted.
    `spark_attempt` is Spark's task attempt ID, which increases with each retry.
    """

    submission: int
    spark_attempt: int


class Hello(NamedTuple):
    """The identity of a stream thread, sent when it registers with the driver."""

    application_id: str
    thread_name: str
    thread_index: int
    epoch: Epoch
    pid: int
    host: str


class MessageType(enum.Enum):
    #: A thread's first message. Contains its `Hello`, the number of the last message that it
    #: received, and whether it needs its code.
    HELLO = 1
    #: The driver accepts the thread. Contains the number of the last message that it received.
    WELCOME = 2
    #: The driver rejects the thread. Contains the reason.
    REJECTED = 3
    #: A part of the thread's code, after the welcome, with the number of remaining parts.
    CODE = 4
    REPORT = 5
    COMMAND = 6
    #: The reply to the command with the same number.
    REPLY = 7


@dataclass(frozen=True)
class ThreadExit(Report):
    """Describes how a stream thread ended.

    This is the result of the thread's Spark job, and also its last report, because the job has no
    result if the JVM ends before the thread. The kinds are:

    - `closed`: the thread closed gracefully.
    - `error`: an exception ended the thread.
    - `lost`: the thread stopped gracefully because it lost the driver or received a signal.
    - `killed`: the driver killed the thread because it did not end in time.
    """

    kind: Literal["closed", "error", "lost", "killed"]
    #: For `error`, the exception that ended the thread; for `lost`, an exception while closing.
    error: BaseException | None = None
    #: The thread's last events, oldest first.
    history: tuple[str, ...] = ()
    reason: str = ""
    #: Whether all work in flight was completed when the thread closed.
    has_drained: bool = True


@dataclass(frozen=True)
class UndeliverableObject:
    """Replaces an object that could not be sent between worker and driver."""

    type_name: str
    text: str
    why: str


@dataclass(frozen=True)
class ShippedError:
    """An exception to be sent to another process, with its causes and traceback.

    Pickling an exception drops its traceback and, except for Millstream's classes, its causes. Many
    exceptions cannot be unpickled at all. Therefore, each exception is pickled separately, and
    unpickled as a test. Exceptions that are too large are sent as text.
    """

    #: The exception without its causes. None if only the text is sent, because of `text_reason`.
    pickled: bytes | None = field(repr=False)
    type_name: str
    message: str
    #: The traceback of the root error.
    traceback: str = field(repr=False)
    cause: ShippedError | None = None
    text_reason: str = ""

    @classmethod
    def of(cls, error: BaseException, depth: int = _MAX_CAUSES) -> ShippedError:
        """Convert an exception with up to `depth` causes."""
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        pickled, text_reason = _pickle_without_causes(error)
        return cls(
            pickled,
            type(error).__name__,
            text_of(error),
            traceback_of(_root_error(error))[-_MAX_TRACEBACK_CHARS:]
            if depth == _MAX_CAUSES
            else "",
            cls.of(cause, depth - 1) if cause is not None and depth > 0 else None,
            text_reason,
        )

    def restore(self) -> BaseException:
        """Return the exception.

        If the exception cannot be unpickled, returns a `StreamsError` with its text.
        """
        error = self._unpickle() or StreamsError(
            f"{self.type_name}: {self.message} (only the text of this exception could be sent "
            f"from the worker: {self.text_reason or 'its class does not exist here'})"
        )
        if self.cause is not None:
            error.__cause__ = self.cause.restore()
        if self.traceback:
            add_note(error, "In the stream thread:\n" + self.traceback.rstrip())
        return error

    def _unpickle(self) -> BaseException | None:
        if self.pickled is None:
            return None
        try:
            error = pickle.loads(self.pickled)
        except Exception:
            # The class only exists in the other process, so use the text.
            return None
        return error if isinstance(error, BaseException) else None


def encode_value(value: Any) -> bytes:
    """Encode a value, or an `UndeliverableObject` if the value cannot be sent.

    Exceptions are encoded as `ShippedError`.
    """
    try:
        data = encode_using(value, cloudpickle.dumps)
        if len(data) <= MAX_DATA_BYTES:
            return data
        why = f"its {len(data)} bytes exceed the limit of {MAX_DATA_BYTES} bytes"
    except Exception as error:
        why = summary_of(error)
    return pickle.dumps(UndeliverableObject(type(value).__name__, repr_of(value), why))


def decode_value(data: bytes) -> Any:
    """Decode the bytes of `encode_value`.

    Returns an `UndeliverableObject` instead of raising an exception.
    """
    try:
        if data[0] != _PICKLE:
            return decode_compact(data)
        return _restore_errors(pickle.loads(data))
    except Exception as error:
        return UndeliverableObject("unknown", f"{len(data)} bytes", summary_of(error))


def encode_message(message_type: MessageType, data: bytes, number: int | None = None) -> bytes:
    return _MESSAGE.pack(message_type.value, _NO_NUMBER if number is None else number) + data


def decode_message(payload: bytes) -> tuple[MessageType, bytes, int | None]:
    """Split a message into its type, data and number.

    Raises a `ValueError` if the message is invalid.
    """
    try:
        message_type, number = _MESSAGE.unpack_from(payload)
    except struct.error as error:
        raise ValueError(f"A message of {len(payload)} bytes is too short.") from error
    return (
        MessageType(message_type),
        payload[_MESSAGE.size :],
        None if number == _NO_NUMBER else number,
    )


def encode_using(value: Any, dumps: Callable[[Any], bytes]) -> bytes:
    """Encode a value, with exceptions as `ShippedError`.

    `dumps` pickles values without a compact encoding.
    """
    if isinstance(value, CompactMessage):
        return encode_compact(value)
    return dumps(_convert_errors(value))


def _convert_errors(value: Any) -> Any:
    if isinstance(value, BaseException):
        return ShippedError.of(value)
    if isinstance(value, ThreadExit | ThreadFailed) and value.error is not None:
        shipped: Any = ShippedError.of(value.error)
        return replace(value, error=shipped)
    return value


def _restore_errors(value: Any) -> Any:
    if isinstance(value, ShippedError):
        return value.restore()
    if isinstance(value, ThreadExit | ThreadFailed) and isinstance(value.error, ShippedError):
        return replace(value, error=value.error.restore())
    return value


def _root_error(error: BaseException) -> BaseException:
    """Return the first error in the chain that is not a `StreamsError` wrapper.

    The chain consists of the error and its causes.
    """
    while isinstance(error, StreamsError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _pickle_without_causes(error: BaseException) -> tuple[bytes | None, str]:
    """Pickle an exception without its causes.

    Returns None and the reason if this is impossible.
    """
    try:
        alone = error
        if isinstance(error, StreamsError):
            # `StreamsError` pickles its cause too, which is sent separately here.
            alone = copy.copy(error)
            alone.__cause__ = None
        data: bytes = cloudpickle.dumps(alone)
        if len(data) > _MAX_EXCEPTION_BYTES:
            return (
                None,
                f"its {len(data):,} bytes exceed the limit of {_MAX_EXCEPTION_BYTES:,} bytes",
            )
        if type(pickle.loads(data)) is type(error):
            return data, ""
    except Exception:
        # The user's class may raise any exception. Send the text instead.
        logger.debug("An exception cannot be pickled", exc_info=True)
    return None, "its class cannot be pickled"
