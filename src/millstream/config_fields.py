"""How a settings class is declared: one line a setting, checked when an object of it is made.

A class that derives from `Settings` lists its settings as annotated attributes made by
`setting(...)`. That list is the only table: the constructor, the validation, the reading of Java's
dotted properties and the reference page in the documentation all come from it.

    class Example(Settings):
        num_threads: int = setting("num.threads", 1, least=1, doc="How many threads to start.")

An object is frozen, compares by value, and survives pickling. Not thread-local, not reloadable.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

from millstream.config_threads import checked_threads, parse_threads
from millstream.errors import ConfigError

_REQUIRED: Final = object()

#: What is hidden when settings are printed.
_SECRET_PARTS: Final = ("password", "secret", "jaas", "passphrase", "auth.user.info")
_SECRET_ENDS: Final = (".key", ".key.pem", "server_token")

T = TypeVar("T", bound="Settings")


class PathSetting:
    """For type checkers: given as a string or a path, a string afterwards."""

    def __get__(self, instance: object, owner: Any = None) -> str:
        raise NotImplementedError

    def __set__(self, instance: object, value: str | os.PathLike[str]) -> None: ...


class ServersSetting:
    """For type checkers: given as a string or several, one string afterwards.

    Only of use in the class that is called: mypy does not find it in a base class.
    """

    def __get__(self, instance: object, owner: Any = None) -> str:
        raise NotImplementedError

    def __set__(self, instance: object, value: str | Sequence[str]) -> None: ...


@dataclass(slots=True)
class Setting:
    """One setting: its names, type, default, bounds and meaning. What a docs generator reads.

    `kind` is one of "int", "float", "bool", "str", "path", "list", "servers" (a "str" that may be
    given as a list), "threads" (an "int", or two as a pair), "mapping" and "object". A "choice" is
    a "str" with `choices`. `unsupported` tells why a value other than the default is refused.
    """

    dotted: str
    default: Any
    doc: str
    kind: str
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    unsupported: str | None = None
    name: str = ""

    @property
    def required(self) -> bool:
        """Whether it has no default and must be given."""
        return self.default is _REQUIRED

    def fresh_default(self) -> Any:
        """The default, copied where it could be changed."""
        return dict(self.default or {}) if self.kind == "mapping" else self.default

    def bounds(self) -> str:
        """The accepted values in words, or nothing where the type says it all."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.least is not None and self.most is not None:
            return f"from {self.least} to {self.most}"
        if self.least is not None:
            return f"at least {self.least}"
        return f"at most {self.most}" if self.most is not None else ""

    def checked(self, value: Any) -> Any:
        """`value` in its final form.

        Raises:
            ConfigError: it has the wrong type or lies outside the bounds.
        """
        if value is None:
            if self.default is None:
                return None
            raise ConfigError(f"{self.name} must not be None. {self.doc}")
        value = _typed(self.name, self.kind, value)
        if self.choices and self.kind == "str":
            value = self._chosen(value)
        elif self.choices:
            value = tuple(self._chosen(item) for item in value)
        if self.kind in ("int", "float") and not self._in_bounds(value):
            raise ConfigError(f"{self.name} is {value}, but must be {self.bounds()}. {self.doc}")
        if self.unsupported is not None and value != self.default:
            raise ConfigError(
                f"{self.name}={value!r} is not supported: {self.unsupported} Leave it at "
                f"{self.default!r}."
            )
        return value

    def parsed(self, value: Any) -> Any:
        """`value` as a properties file gives it, turned into the type of this setting."""
        return parse(self.dotted, self.kind, value) if isinstance(value, str) else value

    def _chosen(self, value: str) -> str:
        for choice in self.choices:
            if choice.lower() == value.lower():
                return choice
        raise ConfigError(
            f"{self.name} is {value!r}, but must be "
            f"{self.bounds()}.{did_you_mean(value, self.choices)}"
        )

    def _in_bounds(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )


def setting(
    dotted: str,
    default: Any = _REQUIRED,
    *,
    doc: str,
    kind: str | None = None,
    least: int | None = None,
    most: int | None = None,
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    unsupported: str | None = None,
) -> Any:
    """Declare one setting of a `Settings` class.

    Args:
        dotted: Kafka's name for it.
        default: its value when not given; None makes it optional, none at all required.
        doc: one sentence for the reference page.
        kind: its type, where the default does not tell (see `Setting`).
        least: the smallest value allowed.
        most: the largest value allowed.
        choices: the only values allowed, compared without case.
        aliases: older dotted names that mean the same.
        unsupported: why values other than the default are refused.
    """
    return Setting(
        dotted,
        default,
        doc,
        kind or _kind_of(default),
        least,
        most,
        choices,
        aliases,
        unsupported,
    )


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """A frozen set of settings; see the module's description.

    Raises:
        ConfigError: a setting is unknown (the nearest known name is suggested), missing, of the
            wrong type or out of bounds.
    """

    _settings: ClassVar[Mapping[str, Setting]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Setting)}
        for name, field in own.items():
            field.name = name
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
        """Every setting in the order it is declared: what the reference page is generated from.

        Example:
            >>> names = [setting.name for setting in StreamsConfig.settings()]
            >>> names[:2]
            ['application_id', 'bootstrap_servers']
        """
        return tuple(cls._settings.values())

    @property
    def given(self) -> frozenset[str]:
        """The names of the settings that were given, as opposed to left at their defaults."""
        given: frozenset[str] = self.__dict__["_given"]
        return given

    def _complete(self) -> None:
        """For subclasses: check settings against each other."""

    @classmethod
    def _unknown(cls, name: str) -> ConfigError:
        for field in cls._settings.values():
            if name == field.dotted or name in field.aliases:
                return ConfigError(
                    f"{cls.__name__} has no argument {name!r}: write {field.name}=, or give "
                    "dotted names to from_properties."
                )
        return ConfigError(
            f"{cls.__name__} has no setting {name!r}.{did_you_mean(name, cls._settings)}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"A {type(self).__name__} cannot be changed; replace({name}=...) gives a changed copy."
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"A {type(self).__name__} cannot be changed.")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    # Settings hold dictionaries, so they cannot be hashed.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (
            f"{name}={_shown(name, self.__dict__[name])}"
            for name, field in self._settings.items()
            if self.__dict__[name] != field.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the known name nearest to `name`, or nothing when none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def parse(name: str, kind: str, text: str) -> Any:
    """A string of a properties file as a value of `kind`.

    Raises:
        ConfigError: it cannot be read as one.
    """
    stripped = text.strip()
    if kind == "threads":
        return parse_threads(name, stripped)
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
    """`value`, or asterisks where `name` tells that it is a secret."""
    lowered = name.lower()
    if callable(value):
        # The repr of a partial shows what it holds.
        return f"<{getattr(value, '__qualname__', type(value).__qualname__)}>"
    secret = lowered.endswith(_SECRET_ENDS) or any(part in lowered for part in _SECRET_PARTS)
    return "********" if secret else value


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return repr({key: masked(str(key), item) for key, item in value.items()})
    return repr(masked(name, value)) if isinstance(value, str | bytes) else repr(value)


def _kind_of(default: Any) -> str:
    for python_type, kind in (
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (tuple, "list"),
        (dict, "mapping"),
    ):
        if isinstance(default, python_type):
            return kind
    return "str"


def _typed(name: str, kind: str, value: Any) -> Any:
    if kind == "int":
        return _integer(name, value)
    if kind == "threads":
        return checked_threads(name, value)
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
    expected = {
        "bool": "True or False",
        "str": "a string",
        "path": "a path",
        "list": "a list of strings",
        "servers": "a string or a list of strings",
    }
    raise ConfigError(
        f"{name} is {_shown(name, value)} ({type(value).__name__}), but must be "
        f"{expected.get(kind, 'a number' if kind == 'float' else 'a dictionary')}."
    )


def _instance(name: str, kind: type) -> Any:
    """A class stands for the object it makes, as class names do in Java."""
    try:
        return kind()
    except TypeError as error:
        raise ConfigError(
            f"{name} is the class {kind.__name__}, which cannot be called without arguments. Give "
            "an object of it."
        ) from error


def _integer(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, timedelta):
        milliseconds = value // timedelta(milliseconds=1)
        raise ConfigError(
            f"{name} is a timedelta, but must be an int, in the unit that ends its "
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
