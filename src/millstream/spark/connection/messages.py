"""What travels on the control connection: hello, reports, commands, replies, a thread's end.

Bodies are pickled with cloudpickle, because exceptions and other objects of the user's travel in
them; questions about stores and their answers, which come by the thousand, have bytes of their own.
Something that does not survive the journey arrives as a description of itself instead: a
report or an error must never be lost because of what it holds.
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

from millstream.errors import (
    StreamsError,
    add_note,
    repr_of,
    summary_of,
    text_of,
    traceback_of,
)
from millstream.runtime.control import Report, ThreadFailed
from millstream.runtime.queries.questions import Compact, decode_compact, encode_compact
from millstream.spark.connection.wire import MAX_FRAME_BYTES

logger = logging.getLogger(__name__)

_TRACEBACK_CHARS: Final = 64 * 1024
#: The most that one exception may take, with what it holds. All of an error and its causes is far
#: from the limit of a message, so that a report with an error never exceeds that.
_EXCEPTION_BYTES: Final = 4 * 1024 * 1024
#: How many causes of an error are carried along.
_CAUSES: Final = 8
#: In front of the data of a message: what it is, and its number.
_MESSAGE: Final = struct.Struct(">Bq")
_NO_NUMBER: Final = -1
#: With what every pickle begins, and nothing that is encoded compactly.
_PICKLE: Final = pickle.PROTO[0]
#: The most that the data of one message may take; the rest of a frame is for its other fields.
MAX_DATA_BYTES: Final = MAX_FRAME_BYTES - 64 * 1024


class Epoch(NamedTuple):
    """Which attempt of a stream thread this is. A later attempt compares as greater.

    `submission` counts the jobs that the driver submitted for the thread; `spark_attempt` is the
    number that Spark gave the task, which is greater for each retry.
    """

    submission: int
    spark_attempt: int


class Hello(NamedTuple):
    """What a stream thread says of itself when it registers with the driver."""

    application_id: str
    thread_name: str
    thread_index: int
    epoch: Epoch
    pid: int
    host: str


class What(enum.Enum):
    """What a message on the control connection is."""

    #: A thread's first message: its `Hello`, the number of the last message that it received, and
    #: whether it wants its code.
    HELLO = 1
    #: The answer: the number of the last message that the driver received.
    WELCOME = 2
    #: The other answer: why the driver does not want the thread.
    REFUSED = 3
    #: A part of the thread's code, after the welcome, and how many parts are to come.
    CODE = 4
    REPORT = 5
    COMMAND = 6
    #: The answer to the command of that number.
    REPLY = 7


@dataclass(frozen=True)
class ThreadExit(Report):
    """How a stream thread ended: the result of its Spark job, and what it tells its driver last.

    Where the JVM ends before the thread, the job has no result.

    Args:
        kind: `closed` in an orderly way; `error`, the user's or ours; `lost`, stopped in an orderly
            way because it lost the driver or was told to end by its machine; `killed` by the driver
            because it did not end in time.
        error: what ended it, for `error`; what went wrong while it closed, for `lost`.
        story: what the thread did last, oldest first.
        reason: why it was lost or killed.
        has_drained: whether all that its tasks had in flight when it closed came to its end.
    """

    kind: Literal["closed", "error", "lost", "killed"]
    error: BaseException | None = None
    story: tuple[str, ...] = ()
    reason: str = ""
    has_drained: bool = True


@dataclass(frozen=True)
class Undeliverable:
    """Stands where something did not survive the journey between worker and driver."""

    type_name: str
    text: str
    why: str


@dataclass(frozen=True)
class ShippedError:
    """An exception on its way to another process, with its causes and traceback.

    Pickling an exception forgets its traceback and, for other classes than our own, its causes; and
    many classes cannot be unpickled at all. So each is tried alone beforehand. What is too large
    travels as text.

    Args:
        pickled: the exception without its causes; None if only the text travels.
        type_name: its class.
        message: its text.
        traceback: of the innermost cause that says something.
        cause: its cause or context.
        why_text: why only the text travels.
    """

    pickled: bytes | None = field(repr=False)
    type_name: str
    message: str
    traceback: str = field(repr=False)
    cause: ShippedError | None = None
    why_text: str = ""

    @classmethod
    def of(cls, error: BaseException, depth: int = _CAUSES) -> ShippedError:
        """Make an exception ready for the journey."""
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        pickled, why_text = _pickled_alone(error)
        return cls(
            pickled,
            type(error).__name__,
            text_of(error),
            traceback_of(_telling(error))[-_TRACEBACK_CHARS:] if depth == _CAUSES else "",
            cls.of(cause, depth - 1) if cause is not None and depth > 0 else None,
            why_text,
        )

    def restore(self) -> BaseException:
        """The exception, or a `StreamsError` with its text where it cannot be rebuilt here."""
        error = self._rebuilt() or StreamsError(
            f"{self.type_name}: {self.message} (only the text of this exception could be sent "
            f"from the worker: {self.why_text or 'its class does not exist here'})"
        )
        if self.cause is not None:
            error.__cause__ = self.cause.restore()
        if self.traceback:
            add_note(error, "In the stream thread:\n" + self.traceback.rstrip())
        return error

    def _rebuilt(self) -> BaseException | None:
        if self.pickled is None:
            return None
        try:
            error = pickle.loads(self.pickled)
        except Exception:
            # The class exists only on the other side; the text serves.
            return None
        return error if isinstance(error, BaseException) else None


def encode_value(value: Any) -> bytes:
    """One value in bytes; exceptions as `ShippedError`, what cannot be sent as `Undeliverable`."""
    try:
        data = encoded(value, cloudpickle.dumps)
        if len(data) <= MAX_DATA_BYTES:
            return data
        why = f"its {len(data)} bytes are above the limit of {MAX_DATA_BYTES} bytes"
    except Exception as error:
        why = summary_of(error)
    return pickle.dumps(Undeliverable(type(value).__name__, repr_of(value), why))


def decode_value(data: bytes) -> Any:
    """The inverse of `encode_value`. Never raises: see `Undeliverable`."""
    try:
        if data[0] != _PICKLE:
            return decode_compact(data)
        return _inbound(pickle.loads(data))
    except Exception as error:
        return Undeliverable("unknown", f"{len(data)} bytes", summary_of(error))


def encode_message(what: What, data: bytes, number: int | None = None) -> bytes:
    """Frame a report, command or reply around its encoded data."""
    return _MESSAGE.pack(what.value, _NO_NUMBER if number is None else number) + data


def decode_message(payload: bytes) -> tuple[What, bytes, int | None]:
    """The inverse of `encode_message`.

    Raises:
        ValueError: it is not one.
    """
    try:
        what, number = _MESSAGE.unpack_from(payload)
    except struct.error as error:
        raise ValueError(f"A message of {len(payload)} bytes is too short.") from error
    return What(what), payload[_MESSAGE.size :], None if number == _NO_NUMBER else number


def encoded(value: Any, pickled: Callable[[Any], bytes]) -> bytes:
    """One value in bytes.

    Args:
        value: it, with exceptions or without.
        pickled: what is done where it has no bytes of its own.
    """
    return encode_compact(value) if isinstance(value, Compact) else pickled(_outbound(value))


def _outbound(value: Any) -> Any:
    """The value as it is pickled: exceptions made ready for the journey."""
    if isinstance(value, BaseException):
        return ShippedError.of(value)
    if isinstance(value, ThreadExit | ThreadFailed) and value.error is not None:
        shipped: Any = ShippedError.of(value.error)
        return replace(value, error=shipped)
    return value


def _inbound(value: Any) -> Any:
    if isinstance(value, ShippedError):
        return value.restore()
    if isinstance(value, ThreadExit | ThreadFailed) and isinstance(value.error, ShippedError):
        return replace(value, error=value.error.restore())
    return value


def _telling(error: BaseException) -> BaseException:
    """Whose traceback says something: where we noticed what the user's code raised says nothing."""
    while isinstance(error, StreamsError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _pickled_alone(error: BaseException) -> tuple[bytes | None, str]:
    """The exception without its causes, if that can be pickled and read back; else why not."""
    try:
        alone = error
        if isinstance(error, StreamsError):
            # Its own pickling takes the cause along, which travels separately here.
            alone = copy.copy(error)
            alone.__cause__ = None
        data: bytes = cloudpickle.dumps(alone)
        if len(data) > _EXCEPTION_BYTES:
            return None, f"it holds {len(data):,} bytes, and at most {_EXCEPTION_BYTES:,} are sent"
        if type(pickle.loads(data)) is type(error):
            return data, ""
    except Exception:
        # Any failure of the user's class here means: send the text.
        logger.debug("an exception cannot be pickled", exc_info=True)
    return None, "its class cannot be pickled"
