"""The serde: a pair of functions which turn a key or a value into bytes, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NoReturn, TypeVar

from millstream.errors import BatchSerializationError, SerializationError, summary_of
from millstream.unawaited import refuse_deferred

T = TypeVar("T")

#: A value in an error message is cut after so many characters.
_SHOWN_CHARACTERS = 80


class Serde(Generic[T]):
    """Turns objects into bytes and bytes into objects, one or many at a time.

    None, which is a deletion in a table, is never given to the functions: it stays None both ways.

    `serialize` may return any object with the buffer protocol, such as `bytearray` or `memoryview`.
    Stores, caches and clients get `bytes` in any case.

    A function must not keep what it was given nor change it, and must give equal bytes for equal
    values if the serde is used for keys: Kafka, stores and joins compare the bytes of keys.

    A serde is shipped to Spark's workers by pickling it. One that holds a connection opens it on
    first use there, and leaves it out of its pickled state.

    A subclass may give faster `serialize_many` and `deserialize_many`. Like these, they return
    a new list, and raise `BatchSerializationError` for the first element that fails.

    Args:
        serialize: `(topic, value) -> bytes`, or None to write a deletion.
        deserialize: `(topic, data) -> value`.
        immutable: whether a decoded value can be changed in place. False is always safe; True
            saves a copy where the engine must protect a value from changes.
        name: what error messages call this serde; by default the names of the functions.

    Example:
        >>> upper = Serde(lambda topic, v: v.upper().encode(), lambda topic, data: data.decode())
        >>> upper.serialize("letters", "a")
        b'A'
    """

    def __init__(
        self,
        serialize: Callable[[str, T], bytes | None],
        deserialize: Callable[[str, bytes], T | None],
        *,
        immutable: bool = False,
        name: str | None = None,
    ) -> None:
        refuse_deferred("Serde()", "serialize", serialize)
        refuse_deferred("Serde()", "deserialize", deserialize)
        self._serialize = serialize
        self._deserialize = deserialize
        self.immutable = immutable
        self.name = name or f"Serde({_name(serialize)}, {_name(deserialize)})"

    def __repr__(self) -> str:
        return self.name

    def serialize(self, topic: str, value: T | None) -> bytes | None:
        """The bytes of one value.

        Args:
            topic: where they will be written; schema registries name schemas after it.
            value: the value, or None.

        Raises:
            SerializationError: the function failed, and `__cause__` is what it raised; or it
                returned something other than bytes.

        Example:
            >>> STRING.serialize("words", "tea")
            b'tea'
            >>> STRING.serialize("words", None)
        """
        if value is None:
            return None
        try:
            data = self._serialize(topic, value)
            return data if type(data) is bytes else _as_bytes(data)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(
                self._cannot_serialize(value, error), topic=topic or None
            ) from error

    def deserialize(self, topic: str, data: bytes | None) -> T | None:
        """The value that some bytes stand for.

        Args:
            topic: where they were read.
            data: the bytes, or None.

        Raises:
            SerializationError: the function failed; `__cause__` is what it raised.

        Example:
            >>> STRING.deserialize("words", b"tea")
            'tea'
        """
        if data is None:
            return None
        try:
            return self._deserialize(topic, data)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(
                self._cannot_deserialize(data, error), topic=topic or None
            ) from error

    def serialize_many(self, topic: str, values: Sequence[T | None]) -> list[bytes | None]:
        """The bytes of each value, in a new list.

        Raises:
            BatchSerializationError: a value failed, see `serialize`; the error has its index and
                the results before it.

        Example:
            >>> STRING.serialize_many("words", ["tea", None])
            [b'tea', None]
        """
        done: list[bytes | None] = []
        append = done.append
        function = self._serialize
        try:
            # 30 ns a record more than the function: the error must know the failing index without
            # a second call of the user's function, which rules out a list comprehension.
            for value in values:
                append(None if value is None else function(topic, value))
        except Exception as error:
            self._make_bytes(topic, values, done)
            self._fail(topic, self._cannot_serialize(value, error), error, done)
        # Comparing the types takes 22 ns a record.
        if not _BYTES.issuperset(map(type, done)):
            self._make_bytes(topic, values, done)
        return done

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[T | None]:
        """The value of each element, in a new list.

        Raises:
            BatchSerializationError: an element failed; it tells which, and holds the results
                before.

        Example:
            >>> STRING.deserialize_many("words", [b"tea", None])
            ['tea', None]
        """
        done: list[T | None] = []
        append = done.append
        function = self._deserialize
        try:
            for data in datas:
                append(None if data is None else function(topic, data))
        except Exception as error:
            self._fail(topic, self._cannot_deserialize(data, error), error, done)
        return done

    def _make_bytes(self, topic: str, values: Sequence[T | None], done: list[Any]) -> None:
        """Make bytes of what the function returned for some values, in place."""
        for index, data in enumerate(done):
            try:
                done[index] = _as_bytes(data)
            except WrongValueError as error:
                message = self._cannot_serialize(values[index], error)
                self._fail(topic, message, error, done[:index])

    def _cannot_serialize(self, value: Any, error: Exception) -> str:
        return (
            f"{self.name} cannot serialize {shown(value)}: {reason(error)}. "
            "Give a serde that takes such values, or convert the value before."
        )

    def _cannot_deserialize(self, data: Any, error: Exception) -> str:
        return (
            f"{self.name} cannot deserialize {shown(data)}: {reason(error)}. "
            "Probably the data was written in another format; give the serde it was written with."
        )

    def _fail(self, topic: str, message: str, error: Exception, done: list[Any]) -> NoReturn:
        if isinstance(error, SerializationError):
            message = error.message
        raise BatchSerializationError(
            message, index=len(done), done=done, topic=topic or None
        ) from error


def shown(value: Any) -> str:
    """A value and its type, short enough for an error message."""
    if isinstance(value, bytes):
        start = repr(value[:_SHOWN_CHARACTERS]) + ("..." if len(value) > _SHOWN_CHARACTERS else "")
        return f"{len(value)} bytes {start}"
    try:
        text = repr(value)
    except Exception:  # A broken __repr__ of the user's must not hide the error being told.
        text = "a value"
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "..."
    return f"{text} ({type(value).__name__})"


def reason(error: Exception) -> str:
    """What an exception says, with its type where the text alone would be too little."""
    if isinstance(error, WrongValueError):
        return str(error)
    return summary_of(error).rstrip(".")


class WrongValueError(ValueError):
    """A value or its bytes do not fit the serde; the text says in which way."""


#: What all that a function has returned is of, almost always.
_BYTES: Final = frozenset((bytes, type(None)))


def _as_bytes(data: Any) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise WrongValueError(
            f"its function returned a {type(data).__name__} in place of bytes"
        ) from None


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
