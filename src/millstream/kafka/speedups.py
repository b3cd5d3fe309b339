"""The clients of the C extension, which read and write columns.

With or without the extension, a forked child must not use, close or drop clients and caches of its
parent: the threads of librdkafka do not exist in the child, reads may block forever, and librdkafka
aborts a process that destroys such a client. A child must end with `os._exit()`, as children of
`multiprocessing` do, and may create its own clients. If a process exits while a daemon thread
reads, that read keeps its client open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from millstream.errors import ConfigError
from millstream.kafka.settings.librdkafka_settings import create_client
from millstream.native import HOW_TO_INSTALL, extension, unsupported

if TYPE_CHECKING:
    from millstream.native.library import Client as NativeClient

_Client = TypeVar("_Client")

_PLUGINS: Final = "plugin.library.paths"
#: The separator of librdkafka's plugin paths.
_SEPARATOR: Final = ";"


class Speedups(NamedTuple):
    #: The path of the plugin for librdkafka.
    plugin: str
    #: Returns the extension's view of a client that the calling thread has just created.
    attach: Callable[[object], NativeClient]

    def create(
        self, kind: Callable[..., _Client], settings: Mapping[str, Any]
    ) -> tuple[_Client, NativeClient]:
        """Create a confluent-kafka client, and the extension's view of it.

        Uses `create_client`, with the extension as an additional plugin.
        """
        plugins = [path for path in (settings.get(_PLUGINS), self.plugin) if path]
        client = create_client(kind, {**settings, _PLUGINS: _SEPARATOR.join(plugins)})
        return client, self.attach(client)


def chosen_speedups(setting: bool | None) -> Speedups | None:
    """Return the extension, or None to use Python.

    The extension is optional if `setting` is None. Raises ConfigError if `setting` is True and the
    extension is not usable here.
    """
    if setting is False:
        return None
    found = _load_speedups()
    if isinstance(found, Speedups):
        return found
    if setting:
        raise ConfigError(
            f"speedups=True, but {found}. It is needed where the clients run, in Spark's Python "
            f"workers. {HOW_TO_INSTALL} Or leave speedups at None to run without it."
        )
    return None


def is_missing(setting: bool | None) -> bool:
    """Whether Python is used although the setting permits the extension."""
    return setting is not False and isinstance(_load_speedups(), str)


def missing_advice(setting: bool | None) -> str | None:
    """Return a warning about a missing extension, with advice, or None.

    There is no warning if the extension is used, or if `setting` is False.
    """
    found = None if setting is False else _load_speedups()
    if not isinstance(found, str):
        return None
    advice = "" if unsupported() else f" {HOW_TO_INSTALL}"
    return (
        f"Python code replaces the C extension, and takes about twice as long per record, since "
        f"{found}.{advice} speedups=False hides this warning."
    )


def describe_speedups(setting: bool | None) -> str:
    """Describe how records are read and written, for the log."""
    if setting is False:
        return "one by one, since speedups=False"
    found = _load_speedups()
    return (
        "as columns, by the C extension"
        if isinstance(found, Speedups)
        else f"one by one, since {found}"
    )


def _load_speedups() -> Speedups | str:
    """Return the extension, or the reason why it is not usable."""
    module = extension()
    if isinstance(module, str):
        return module
    reason = module.UNAVAILABLE_BECAUSE
    if reason is None and _SEPARATOR in module.PLUGIN:
        reason = f"its path contains a {_SEPARATOR!r}"
    if reason is not None:
        return f"the C extension is not usable: {reason}"
    return Speedups(module.PLUGIN, module.attach)
