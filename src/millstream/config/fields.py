"""Declaration of settings classes.

A subclass of `Settings` declares its settings as annotated attributes with `setting(...)`. The
constructor, validation, conversion of Java properties, and the reference page in the documentation
are all based on these declarations.

    class Example(Settings):
        num_threads: int = setting(default=1, minimum=1, doc="Number of threads.")

The dotted name (here `num.threads`) is derived from the attribute's name unless it is specified.

Instances are frozen, compare by value, and can be pickled.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, Generic, TypeVar, dataclass_transform

from millstream.errors import ConfigError, summary_of

_REQUIRED: Final = object()

#: Settings whose names contain one of these parts are masked in output.
_SECRET_PARTS: Final = ("password", "secret", "jaas", "passphrase", "auth.user.info")
_SECRET_SUFFIXES: Final = (".key", ".key.pem", "server_token")

#: A number of threads, or a range as a pair (minimum, maximum).
Threads = int | tuple[int, int]

#: The kind of a setting, by the type of its default.
_KINDS: Final = {bool: "bool", int: "int", float: "float", tuple: "list", dict: "mapping"}

_MASK: Final = "********"

_THREAD_RANGE: Final = re.compile(r"(\d+)\s*-\s*(\d+)")
_THREADS_MUST_BE: Final = "must be an int or a pair of ints (minimum, maximum), such as (1, 8)"

Read = TypeVar("Read")
Given = TypeVar("Given")


class SecretStr(str):
    """A string whose `repr` is masked.

    Settings that refer to a secret, as in `${env:PASSWORD}`, have such values.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(_MASK)


class Converted(Generic[Read, Given]):
    """An attribute that is assigned as one type and read as another.

    For type checkers. Must be used in the class that is instantiated, because mypy ignores it in a
    base class.
    """

    def __get__(self, instance: object, owner: Any = None) -> Read:
        raise NotImplementedError

    def __set__(self, instance: object, value: Given) -> None: ...


PathSetting = Converted[str, str | os.PathLike[str]]
ServersSetting = Converted[str, str | Sequence[str]]
ThreadsSetting = Converted[Threads, int | Sequence[int]]


@dataclass(slots=True)
class Setting:
    """One setting: its names, type, default, bounds and documentation.

    `kind` is one of "int", "float", "bool", "str", "path", "list", "servers" (a "str" that may be
    passed as a list), "threads" (an int or a pair of ints), "mapping" and "object". A "str" or
    "list" may be restricted to `choices`. `unsupported` explains why a value other than the default
    is rejected. `is_connection` marks settings that are passed to the Kafka clients.
    """

    dotted: str
    default: Any
    doc: str
    kind: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    unsupported: str | None = None
    is_connection: bool = False
    name: str = ""

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    def fresh_default(self) -> Any:
        """Return the default, copied if it is mutable."""
        return dict(self.default or {}) if self.kind == "mapping" else self.default

    def bounds(self) -> str:
        """Describe the accepted values; empty if only the type is restricted."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.minimum is not None and self.maximum is not None:
            return f"from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"at least {self.minimum}"
        return f"at most {self.maximum}" if self.maximum is not None else ""

    def checked(self, value: Any) -> Any:
        """Normalize `value`.

        Raises ConfigError if it has the wrong type or is out of bounds."""
        if value is None:
            if self.default is None:
                return None
            raise ConfigError(f"{self.name} must not be None. {self.doc}")
        value = _typed(self.name, self.kind, value)
        if self.choices and self.kind == "str":
            value = self._chosen(value)
        elif self.choices:
            value = tuple(self._chosen(item) for item in value)
        if self.kind in ("int", "float") and not (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
        ):
            raise ConfigError(f"{self.name} is {value}, but must be {self.bounds()}. {self.doc}")
        if self.unsupported is not None and value != self.default:
            raise ConfigError(
                f"{self.name}={value!r} is not supported: {self.unsupported} Leave it at "
                f"{self.default!r}."
            )
        return value

    def parsed(self, value: Any) -> Any:
        """Convert a value from a properties file to the type of this setting."""
        return parse(self.dotted, self.kind, value) if isinstance(value, str) else value

    def _chosen(self, value: str) -> str:
        for choice in self.choices:
            if choice.lower() == value.lower():
                return choice
        raise ConfigError(
            f"{self.name} is {value!r}, but must be "
            f"{self.bounds()}.{did_you_mean(value, self.choices)}"
        )


def setting(
    dotted: str = "",
    *,
    default: Any = _REQUIRED,
    doc: str,
    kind: str | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    unsupported: str | None = None,
    is_connection: bool = False,
) -> Any:
    """Declare one setting of a `Settings` class."""
    return Setting(
        dotted,
        default,
        doc,
        kind or _KINDS.get(type(default), "str"),
        minimum,
        maximum,
        choices,
        aliases,
        unsupported,
        is_connection,
    )


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """Base class of frozen settings; see the module's docstring.

    The constructor raises ConfigError if a setting is unknown (the message suggests the closest
    name), missing, of the wrong type, or out of bounds.
    """

    _settings: ClassVar[Mapping[str, Setting]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Setting)}
        for name, field in own.items():
            field.name = name
            if not field.dotted and field.kind != "mapping":
                field.dotted = name.replace("_", ".")
        cls._settings = {**own, **cls._settings}

    def __init__(self, **values: Any) -> None:
        own = self.__dict__
        own["_given"] = frozenset(values)
        for name in values:
            if name not in self._settings:
                raise self._unknown(name)
        for name, field in self._settings.items():
            if name in values:
                own[name] = field.checked(values[name])
            elif field.required:
                raise ConfigError(f"{type(self).__name__} needs {name}. {field.doc}")
            else:
                own[name] = field.fresh_default()
        self._complete()

    @classmethod
    def settings(cls) -> tuple[Setting, ...]:
        """Return all settings in declaration order, the order of the reference page.

        Example:
            >>> names = [setting.name for setting in StreamsConfig.settings()]
            >>> names[:2]
            ['application_id', 'bootstrap_servers']
        """
        return tuple(cls._settings.values())

    @property
    def given(self) -> frozenset[str]:
        """The names of the settings that were passed explicitly."""
        given: frozenset[str] = self.__dict__["_given"]
        return given

    def _complete(self) -> None:
        """Check settings against each other. A hook for subclasses."""

    @classmethod
    def _unknown(cls, name: str) -> ConfigError:
        for field in cls._settings.values():
            if name == field.dotted or name in field.aliases:
                return ConfigError(
                    f"{cls.__name__} has no argument {name!r}. Use {field.name}=, or pass "
                    "dotted names to from_properties()."
                )
        return ConfigError(
            f"{cls.__name__} has no setting {name!r}.{did_you_mean(name, cls._settings)}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{type(self).__name__} is immutable. Use replace({name}=...) to create a changed copy."
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable.")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    # Not hashable, because settings may be dictionaries.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (
            f"{name}={_shown(name, self.__dict__[name])}"
            for name, field in self._settings.items()
            if self.__dict__[name] != field.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def did_you_mean(name: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """Return ` Did you mean 'x'?` for the closest match to `name`.

    Returns an empty string if no name has this similarity, from 0 to 1.
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=similarity)
    return f" Did you mean {near[0]!r}?" if near else ""


def parse(name: str, kind: str, text: str) -> Any:
    """Parse a string from a properties file as `kind`, or raise ConfigError."""
    stripped = type(text)(text.strip())
    if kind == "threads":
        return _parse_threads(name, stripped)
    try:
        if kind == "int":
            return int(stripped)
        if kind == "float":
            return float(stripped)
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, but must be a number.") from None
    if kind == "bool":
        if stripped.lower() not in ("true", "false"):
            raise ConfigError(f"{name} is {text!r}, but must be true or false.")
        return stripped.lower() == "true"
    if kind == "list":
        return tuple(part.strip() for part in stripped.split(",") if part.strip())
    return stripped if kind in ("str", "path", "servers") else text


def masked(name: str, value: Any) -> Any:
    """Return `value`, or asterisks if the name or the type indicates a secret."""
    lowered = name.lower()
    if callable(value):
        # The repr of a partial shows its arguments.
        return f"<{getattr(value, '__qualname__', type(value).__qualname__)}>"
    secret = lowered.endswith(_SECRET_SUFFIXES) or any(part in lowered for part in _SECRET_PARTS)
    return _MASK if secret or isinstance(value, SecretStr) else value


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return repr({key: masked(str(key), item) for key, item in value.items()})
    return repr(masked(name, value)) if isinstance(value, str | bytes) else repr(value)


_EXPECTED: Final = {
    "bool": "True or False",
    "float": "a number",
    "str": "a string",
    "path": "a path",
    "list": "a list of strings",
    "servers": "a string or a list of strings",
    "mapping": "a dictionary",
}


def _typed(name: str, kind: str, value: Any) -> Any:
    if kind == "int":
        return _integer(name, value)
    if kind == "threads":
        return _checked_threads(name, value)
    if kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind in ("bool", "str") and isinstance(value, bool if kind == "bool" else str):
        return value
    if kind == "path" and isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if kind in ("list", "servers"):
        if kind == "servers" and not isinstance(value, str) and isinstance(value, Iterable):
            return ",".join(_typed(name, "str", item) for item in value)
        if isinstance(value, str):
            return value if kind == "servers" else parse(name, kind, value)
        if isinstance(value, Iterable):
            return tuple(_typed(name, "str", item) for item in value)
    if kind == "mapping" and isinstance(value, Mapping):
        return _string_keys(name, value)
    if kind == "object":
        return _instance(name, value) if isinstance(value, type) else value
    raise ConfigError(
        f"{name} is {_shown(name, value)} ({type(value).__name__}), but must be {_EXPECTED[kind]}."
    )


def import_object(name: str, text: str) -> Any:
    """Import the object that `module:attribute` names.

    Raises ConfigError if the object cannot be imported.
    """
    if isinstance(text, SecretStr):
        # The error of the import would contain the secret.
        raise ConfigError(f"{name} names an object, so it must not be a reference to a secret.")
    module, _, attribute = text.strip().partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{name} is {text!r}, which cannot be imported: {summary_of(error)}. Write "
            "module:attribute, as in millstream.serdes:STRING, or pass the object in code."
        ) from error
    return found


def _instance(name: str, kind: type) -> Any:
    """Instantiate a class that was passed instead of an object, as in Java."""
    try:
        return kind()
    except TypeError as error:
        raise ConfigError(
            f"{name} is the class {kind.__name__}, which cannot be called without arguments. Pass "
            "an instance instead."
        ) from error


def _integer(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, timedelta):
        milliseconds = value // timedelta(milliseconds=1)
        raise ConfigError(
            f"{name} is a timedelta, but must be an int in the unit at the end of its "
            f"name{f': {name}={milliseconds}' if name.endswith('_ms') else ''}."
        )
    raise ConfigError(f"{name} is {value!r} ({type(value).__name__}), but must be an int.")


def _string_keys(name: str, value: Mapping[Any, Any]) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(
                f"{name} has the key {key!r}, but its keys must be setting names such as "
                "'retention.ms'."
            )
    return dict(value)


def _checked_threads(name: str, value: Any) -> Threads:
    """Validate a number or range of threads.

    A range of equal numbers becomes one number.
    """
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise ConfigError(f"{name} is {value!r}, but {_THREADS_MUST_BE}.")
        minimum, maximum = (_thread_count(name, value, each) for each in value)
        if maximum < minimum:
            raise ConfigError(
                f"{name} is {value!r}, but the minimum must come first. Use ({maximum}, {minimum})."
            )
        return minimum if minimum == maximum else (minimum, maximum)
    return _thread_count(name, value, value)


def _parse_threads(name: str, text: str) -> Threads:
    """Parse a value from a properties file: `4` or `1-8`."""
    pair = _THREAD_RANGE.fullmatch(text)
    try:
        return int(text) if pair is None else (int(pair[1]), int(pair[2]))
    except ValueError:
        raise ConfigError(
            f"{name} is {text!r}, but must be a number, or a range such as 1-8."
        ) from None


def bounds_of(threads: Threads) -> tuple[int, int]:
    """Return (minimum, maximum), which are equal for a single number."""
    return threads if isinstance(threads, tuple) else (threads, threads)


def _thread_count(name: str, given: Any, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} is {given!r} ({type(given).__name__}), but {_THREADS_MUST_BE}.")
    if value < 1:
        raise ConfigError(
            f"{name} is {given!r}, but must be at least 1. Without threads, nothing is processed."
        )
    return value
