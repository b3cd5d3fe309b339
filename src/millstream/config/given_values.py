"""Values of settings with their locations in files and environment variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

from millstream.config.client_settings import DICTIONARIES_OF, check_client_settings
from millstream.config.fields import Setting, Settings, import_object, parse
from millstream.config.references import located_at, resolved
from millstream.durations import duration
from millstream.errors import ConfigError

_MILLISECOND: Final = timedelta(milliseconds=1)

S = TypeVar("S", bound=Settings)


class GivenValue(NamedTuple):
    """A value of a setting, or of one key of a setting that is a dictionary."""

    setting: Setting
    key: str | None
    value: Any
    #: The location: `shop.toml, line 4` or `environment variable MILLSTREAM_POLL_MS`.
    place: str


def converted(field: Setting, key: str | None, value: Any) -> Any:
    """Convert a value to the type of the setting, and resolve its references.

    Raises ConfigError if the conversion fails.
    """
    value = resolved(value)
    if not isinstance(value, str):
        return value
    if key is not None:
        if key.endswith(".class") and ":" in value:
            return import_object(key, value)
        return _milliseconds(value) if key.endswith(".ms") else value
    if field.kind == "object":
        return import_object(field.name, value)
    if field.kind == "int" and field.name.endswith("_ms"):
        value = _milliseconds(value)
    return parse(field.name, field.kind, value) if isinstance(value, str) else value


def _milliseconds(text: str) -> int | str:
    """Return a duration such as `30s` in milliseconds, and other strings unchanged."""
    span = duration(text)
    return text if span is None else span // _MILLISECOND


def settings_of(
    kind: type[S],
    layers: Iterable[Iterable[GivenValue]],
    code: Mapping[str, Any],
    missing: Callable[[str], str],
) -> S:
    """Create settings from values with increasing precedence.

    Dictionaries are merged by key. Raises ConfigError with the location of the invalid value.

    Args:
        layers: the values, the layer with the highest precedence last.
        code: arguments of the program, which take precedence over all layers.
        missing: returns the places where a required setting is missing, for the error.
    """
    merged = {(each.setting.name, each.key): each for layer in layers for each in layer}
    arguments: dict[str, Any] = {}
    for (name, key), each in merged.items():
        if key is None:
            arguments[name] = each.value
        else:
            arguments.setdefault(name, {})[key] = each.value
    for name, value in code.items():
        below = arguments.get(name)
        if isinstance(below, dict) and isinstance(value, Mapping):
            value = {**below, **value}
        arguments[name] = value
    for field in kind.settings():
        if field.required and field.name not in arguments:
            raise ConfigError(f"{field.name} is missing: {missing(field.name)}. {field.doc}")
    try:
        return kind(**arguments)
    except ConfigError as error:
        effective = [each for each in merged.values() if not _is_overridden(each, code)]
        for each in effective:
            with located_at(each.place):
                _check(each)
        raise ConfigError(error.message + _origins(error.message, effective)) from error.__cause__


def _is_overridden(given: GivenValue, code: Mapping[str, Any]) -> bool:
    name = given.setting.name
    if name not in code:
        return False
    return given.key is None or not isinstance(code[name], Mapping) or given.key in code[name]


def _check(given: GivenValue) -> None:
    """Check a single value, or raise ConfigError."""
    name = given.setting.name
    if given.key is None:
        given.setting.checked(given.value)
        return
    roles = tuple(role for role, names in DICTIONARIES_OF.items() if name in names)
    if roles:
        check_client_settings(name, {given.key: given.value}, roles)


def _origins(message: str, given: Iterable[GivenValue]) -> str:
    """Return where the settings that a message mentions are set."""
    places = []
    for each in given:
        name = each.key or each.setting.name
        if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w|\.\w)", message):
            places.append(f"{name} is set in {each.place}")
    return f" ({'; '.join(places)})" if places else ""
