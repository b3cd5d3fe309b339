"""`Serde`, which converts keys or values to bytes and back, and base classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NoReturn, TypeVar

from millstream.async_checks import reject_deferred
from millstream.errors import BatchSerializationError, SerializationError, summary_of

T = TypeVar("T")

#: The maximum number of characters of a value in an error message.
_MAX_SHOWN_CHARACTERS = 80


class Serde(Generic[T]):
    """Converts objects to bytes and bytes to objects, one or many at a time.

    None, which represents a deletion in a table, is never passed to the functions: None is
    serialized and deserialized as None.

    `serialize` may return any object with the buffer protocol, such as `bytearray` or `memoryview`.
    Stores, caches and Kafka clients always receive `bytes`.

    The functions must not modify their argument or keep a reference to it. If the serde is used for
    keys, equal values must have equal bytes: Kafka, stores and joins compare the bytes of keys.

    A serde is pickled to ship it to Spark's workers. A serde that has a connection must exclude the
    connection from its pickled state, and open the connection on first use.

    A subclass may provide faster versions of `serialize_many` and `deserialize_many`. They must
    return a new list, and raise `BatchSerializationError` for the first element that fails.

    Args:
        serialize: `(topic, value) -> bytes`; may return None to write a deletion.
        deserialize: `(topic, data) -> value`.
        immutable: whether deserialized values are immutable. False is always safe; True avoids a
            copy when a value must be protected from changes.
        name: the name of the serde in error messages. The default contains the functions' names.

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
        reject_deferred("Serde()", "serialize", serialize)
        reject_deferred("Serde()", "deserialize", deserialize)
        self._serialize = serialize
        self._deserialize = deserialize
        self.immutable = immutable
        self.name: str = name or f"Serde({_name(serialize)}, {_name(deserialize)})"

    def __repr__(self) -> str:
        return self.name

    def serialize(self, topic: str, value: T | None) -> bytes | None:
        """Serialize one value.

        Args:
            topic: the topic of the record. Serdes with a schema registry derive the subject from
                the topic.

        Raises:
            SerializationError: the function raised an exception, which is the `__cause__`, or
                returned an object that is not bytes-like.

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
        """Deserialize one value.

        Raises:
            SerializationError: the function raised an exception, which is the `__cause__`.

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
        """Serialize each value, and return a new list.

        Raises:
            BatchSerializationError: a value could not be serialized, for one of the reasons of
                `serialize`. The error contains the index of the value, and the results for the
                values before it.

        Example:
            >>> STRING.serialize_many("words", ["tea", None])
            [b'tea', None]
        """
        done: list[bytes | None] = []
        append = done.append
        function = self._serialize
        try:
            # The loop takes 30 ns per record in addition to the function. A list comprehension is
            # faster, but after a failure, finding the failed value would require calling the
            # function again.
            for value in values:
                append(None if value is None else function(topic, value))
        except Exception as error:
            self._convert_to_bytes(topic, values, done)
            self._fail(topic, self._cannot_serialize(value, error), error, done)
        # Comparing the types takes 22 ns per record.
        if not _BYTES.issuperset(map(type, done)):
            self._convert_to_bytes(topic, values, done)
        return done

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[T | None]:
        """Deserialize each element, and return a new list.

        Raises:
            BatchSerializationError: an element could not be deserialized. The error contains the
                index of the element, and the results for the elements before it.

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

    def _convert_to_bytes(self, topic: str, values: Sequence[T | None], done: list[Any]) -> None:
        """Convert the results of the user's function to bytes, in place."""
        for index, data in enumerate(done):
            try:
                done[index] = _as_bytes(data)
            except WrongValueError as error:
                message = self._cannot_serialize(values[index], error)
                self._fail(topic, message, error, done[:index])

    def _cannot_serialize(self, value: Any, error: Exception) -> str:
        return (
            f"{self.name} cannot serialize {format_value(value)}: {error_text(error)}. "
            "Use a serde for such values, or convert the value first."
        )

    def _cannot_deserialize(self, data: Any, error: Exception) -> str:
        return (
            f"{self.name} cannot deserialize {format_value(data)}: {error_text(error)}. "
            "The data was probably written in another format; use the serde that it was written "
            "with."
        )

    def _fail(self, topic: str, message: str, error: Exception, done: list[Any]) -> NoReturn:
        if isinstance(error, SerializationError):
            message = error.message
        raise BatchSerializationError(
            message, index=len(done), done=done, topic=topic or None
        ) from error


def format_value(value: Any) -> str:
    if isinstance(value, bytes):
        more = "..." if len(value) > _MAX_SHOWN_CHARACTERS else ""
        return f"{len(value)} bytes {value[:_MAX_SHOWN_CHARACTERS]!r}{more}"
    try:
        text = repr(value)
    except Exception:  # A broken __repr__ of a user's class must not hide the actual error.
        text = "a value"
    if len(text) > _MAX_SHOWN_CHARACTERS:
        text = text[:_MAX_SHOWN_CHARACTERS] + "..."
    return f"{text} ({type(value).__name__})"


def error_text(error: Exception) -> str:
    """Return the text of an exception.

    It includes the type, unless the exception is a `WrongValueError`.
    """
    if isinstance(error, WrongValueError):
        return str(error)
    return summary_of(error).rstrip(".")


class WrongValueError(ValueError):
    """A value or its bytes do not match the serde; the message gives the reason."""


#: The result types of almost all serialize functions.
_BYTES: Final = frozenset((bytes, type(None)))


def _as_bytes(data: Any) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise WrongValueError(
            f"its function returned a {type(data).__name__} instead of bytes"
        ) from None


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


class ArgumentsSerde(Serde[T]):
    """A serde that is compared and pickled by its class and arguments."""

    _arguments: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self._arguments)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArgumentsSerde) or type(self) is not type(other):
            return NotImplemented
        return self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash((type(self), self._arguments))


class WrapperSerde(Serde[T]):
    """A serde that wraps another serde.

    If `inner` is None, the serde is replaced before use with a copy that wraps the default serde of
    the config (see `with_inner`).
    """

    def __init__(
        self,
        inner: Serde[Any] | None,
        serialize: Callable[[str, T], bytes | None],
        deserialize: Callable[[str, bytes], T | None],
        *,
        name: str,
    ) -> None:
        self.inner = inner
        super().__init__(serialize, deserialize, name=name)

    def with_inner(self, inner: Serde[Any]) -> WrapperSerde[T]:
        """Return a copy that wraps another serde."""
        raise NotImplementedError


_constants: dict[str, ConstantSerde[Any]] = {}


class ConstantSerde(Serde[T]):
    """A serde that is a constant of `millstream.serdes`.

    Copying and unpickling, even in another process, return the constant itself, so `is` and `==`
    work.
    """

    def __init__(
        self,
        name: str,
        serialize: Callable[[str, T], bytes | None],
        deserialize: Callable[[str, bytes], T | None],
        *,
        immutable: bool,
    ) -> None:
        super().__init__(serialize, deserialize, immutable=immutable, name=name)
        _constants[name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return (constant_named, (self.name,))


def constant_named(name: str) -> ConstantSerde[Any]:
    """Return the constant with a name.

    Pickles refer to this function: do not rename it.
    """
    return _constants[name]


def all_of_type(kind: type, values: Iterable[object]) -> bool:
    """Return whether every value is of exactly this type. Takes 18 ns per record."""
    return set(map(type, values)) <= {kind}


def check_type(value: object, kinds: tuple[type, ...]) -> None:
    """Raise a `WrongValueError` if a value has none of the accepted types.

    The error lists these types.
    """
    if not isinstance(value, kinds):
        raise WrongValueError(f"it requires {' or '.join(kind.__name__ for kind in kinds)}")
