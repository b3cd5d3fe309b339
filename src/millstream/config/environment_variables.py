"""Settings in environment variables."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from millstream.config.client_settings import CLIENT_SETTINGS, dictionary_of_client_setting
from millstream.config.fields import Setting, did_you_mean
from millstream.config.given_values import GivenValue, converted
from millstream.config.references import located_at
from millstream.errors import ConfigError

_log = logging.getLogger(__name__)

#: The prefix of Millstream's own variables.
PREFIX: Final = "MILLSTREAM_"
#: Millstream's variables that are not settings. Workers read CLIENT_TAG_… and CLIENT_RACK on their
#: own hosts.
_OTHER_VARIABLES: Final = re.compile(
    r"CLIENT_TAG_.*|CLIENT_RACK|BROKER_PORT|CACHE|CHECK_WRITES|DEMO_FETCHED|EXTENSION|IVY_SETTINGS"
    r"|KEY_PASSWORD|SPARK_MASTER|TOKEN"
)
#: Variables that Kubernetes adds for a service whose name begins with the prefix.
_KUBERNETES: Final = re.compile(r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP).*)?)")

#: The similarity to a setting from which an unknown variable is regarded as a misspelled setting.
_SIMILARITY: Final = 0.75


def read_environment(
    prefix: str, variables: Mapping[str, str], settings: Sequence[Setting]
) -> Iterator[GivenValue]:
    """Read the settings in variables with a prefix. Empty variables are ignored.

    Raises ConfigError if a value is invalid, or an unknown name is similar to that of a setting.
    Other unknown names are reported with a warning, because they may belong to other programs.
    """
    by_name = {field.name.upper(): field for field in settings}
    for variable, text in sorted(variables.items()):
        name = variable.removeprefix(prefix)
        if not variable.startswith(prefix) or not name or not text:
            continue
        place = f"environment variable {variable}"
        field, key = _setting_named(name, by_name)
        if field is None:
            if prefix != PREFIX or not _OTHER_VARIABLES.fullmatch(name):
                _report_unknown(prefix, name, settings)
            continue
        with located_at(place):
            if field.kind == "mapping" and key is None:
                raise ConfigError(
                    f"{field.name} has several values, so each has its own variable: append a name "
                    f"in capitals, as in {prefix}CONSUMER_MAX_POLL_RECORDS."
                )
            yield GivenValue(field, key, converted(field, key, text), place)


def _setting_named(name: str, by_name: Mapping[str, Setting]) -> tuple[Setting | None, str | None]:
    """Return the setting of a variable, and the key if the setting is a dictionary."""
    if name in by_name:
        return by_name[name], None
    for dictionary, field in by_name.items():
        if field.kind == "mapping" and name.startswith(f"{dictionary}_"):
            key = name.removeprefix(f"{dictionary}_")
            if field.name == "client_tags":
                return field, key.lower()
            return field, _CLIENT_SETTING_OF.get(key, key.lower().replace("_", "."))
    return None, None


#: Kafka's names by the names in variables; some of Kafka's names contain underscores.
_CLIENT_SETTING_OF: Final = {name.upper().replace(".", "_"): name for name in CLIENT_SETTINGS}


def _report_unknown(prefix: str, name: str, settings: Sequence[Setting]) -> None:
    """Raise ConfigError for a misspelled setting, else log a warning."""
    variable = prefix + name
    dictionary = dictionary_of_client_setting(_CLIENT_SETTING_OF.get(name, ""))
    if dictionary is not None:
        raise ConfigError(
            f"The environment variable {variable} is a setting of the Kafka clients: write "
            f"{prefix}{dictionary.upper()}_{name}."
        )
    if _KUBERNETES.fullmatch(name):
        return
    names = (field.name.upper() for field in settings)
    hint = did_you_mean(name, names, _SIMILARITY).replace("'", f"'{prefix}", 1)
    if hint:
        raise ConfigError(f"The environment variable {variable} is not a setting.{hint}")
    _log.warning("The environment variable %s is not a setting and has no effect.", variable)
