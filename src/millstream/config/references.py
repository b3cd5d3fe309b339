"""References to secrets in the values of settings.

The forms are `${env:NAME}`, `${file:/path:key}`, `${dir:/path:name}` and `${file:/path}`. The first
three are those of Kafka's configuration providers (KIP-297, KIP-421, KIP-887).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from millstream.config.fields import SecretStr, did_you_mean
from millstream.config.properties_format import read_properties_file, read_text
from millstream.errors import ConfigError

#: `${NAME}` without a colon is not a reference: `state_dir` may contain it.
_REFERENCE: Final = re.compile(r"\$\{([^}:$]+):([^}]*)\}")

#: Kafka's providers and their names here.
_JAVA_PROVIDERS: Final = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "dir",
}
_PROVIDERS_KEY: Final = "config.providers"


def resolved(value: Any, aliases: Mapping[str, str] | None = None) -> Any:
    """Replace the references in a string, or in the strings of a list.

    A string with references becomes a `SecretStr`. A resolved value may contain no further
    references. Raises ConfigError, without the secret, if a reference cannot be resolved.

    Args:
        aliases: other names of the providers `env`, `file` and `dir`.
    """
    if isinstance(value, list):
        return [resolved(each, aliases) for each in value]
    if not isinstance(value, str):
        return value

    def replace(found: re.Match[str]) -> str:
        name = (aliases or {}).get(found[1], found[1])
        provider = _PROVIDERS.get(name)
        if provider is None:
            raise ConfigError(
                f"{found[0]} names the unknown provider {found[1]!r}. Use ${{env:NAME}}, "
                "${file:/path}, ${file:/path:key} or ${dir:/path:name}."
                + did_you_mean(found[1], _PROVIDERS)
            )
        return provider(found[2], found[0])

    text, count = _REFERENCE.subn(replace, value)
    return SecretStr(text) if count else value


@contextmanager
def located_at(place: str) -> Iterator[None]:
    """Prefix the messages of ConfigErrors in the block with a location."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}") from error.__cause__


def resolved_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a Java properties file, and resolve its references.

    Raises ConfigError if the file cannot be read, a line is not a setting, or a reference cannot be
    resolved.
    """
    lines = read_properties_file(path)
    aliases = provider_aliases({each.key: each.value for each in lines})
    properties: dict[str, str] = {}
    for each in lines:
        if not declares_provider(each.key):
            with located_at(f"{os.fspath(path)}, line {each.line}"):
                properties[each.key] = resolved(each.value, aliases)
    return properties


def provider_aliases(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the providers that a Java application declares.

    They are declared with `config.providers=NAME` and `config.providers.NAME.class=…`. Raises
    ConfigError if a provider is not one of Kafka's, or has parameters.
    """
    aliases: dict[str, str] = {}
    for name in filter(None, map(str.strip, properties.get(_PROVIDERS_KEY, "").split(","))):
        java_class = properties.get(f"{_PROVIDERS_KEY}.{name}.class", "")
        if java_class not in _JAVA_PROVIDERS:
            raise ConfigError(
                f"{_PROVIDERS_KEY}.{name}.class is {java_class!r}, but must be one of "
                f"{', '.join(_JAVA_PROVIDERS)}."
            )
        aliases[name] = _JAVA_PROVIDERS[java_class]
    for key in properties:
        if key.startswith(f"{_PROVIDERS_KEY}.") and not key.endswith(".class"):
            raise ConfigError(f"{key} is not supported: providers have no parameters.")
    return aliases


def declares_provider(key: str) -> bool:
    """Return whether a property declares a provider."""
    return key == _PROVIDERS_KEY or key.startswith(f"{_PROVIDERS_KEY}.")


def _from_environment(name: str, reference: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise ConfigError(f"{reference} refers to the environment variable {name}, which is unset.")
    return found


def _from_file(location: str, reference: str) -> str:
    path, separator, key = location.rpartition(":")
    if not separator:
        return _content(Path(location), reference)
    try:
        values = {each.key: each.value for each in read_properties_file(path)}
    except ConfigError as error:
        raise ConfigError(f"{reference} cannot be resolved. {error.message}") from error
    if key not in values:
        raise ConfigError(
            f"{reference} refers to the key {key!r}, which {path} does not contain."
            + did_you_mean(key, values)
        )
    return values[key]


def _from_folder(location: str, reference: str) -> str:
    folder, separator, name = location.rpartition(":")
    if not separator or name == ".." or name != Path(name).name:
        raise ConfigError(
            f"{reference} must contain a folder and the name of a file: ${{dir:/path:name}}."
        )
    return _content(Path(folder) / name, reference)


def _content(path: Path, reference: str) -> str:
    """Return a file's content without its final line break.

    Editors and tools append it.
    """
    try:
        text = read_text(path)
    except ConfigError as error:
        raise ConfigError(f"{reference} cannot be resolved. {error.message}") from error
    return text.removesuffix("\n").removesuffix("\r")


_PROVIDERS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "env": _from_environment,
    "file": _from_file,
    "dir": _from_folder,
}
