"""The C extension `millstream_speedups`, which reads and writes records as columns if installed.

A forked child must not use, close or drop clients and caches of its parent, with or without the
extension: the threads of librdkafka do not exist there, reads may block forever, and librdkafka
aborts a process that destroys such a client. A child ends with `os._exit()`, as those of
`multiprocessing` do, and may make clients of its own. When a process exits while a daemon thread
reads, the thread's call keeps its client open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from millstream.compiled import extension
from millstream.errors import ConfigError
from millstream.kafka.settings.clients import create_client

if TYPE_CHECKING:
    from millstream_speedups import Client as NativeClient

_Client = TypeVar("_Client")

_PLUGINS: Final = "plugin.library.paths"
#: What librdkafka takes for the end of a path.
_SEPARATOR: Final = ";"


class Speedups(NamedTuple):
    """The extension, found usable.

    Args:
        plugin: the path of what librdkafka has to load.
        attach: gives the extension's view of a client that this thread has just made.
    """

    plugin: str
    attach: Callable[[object], NativeClient]

    def create(
        self, kind: Callable[..., _Client], settings: Mapping[str, Any]
    ) -> tuple[_Client, NativeClient]:
        """Make a confluent-kafka client as `create_client` does, and the extension's view of it."""
        plugins = [path for path in (settings.get(_PLUGINS), self.plugin) if path]
        client = create_client(kind, {**settings, _PLUGINS: _SEPARATOR.join(plugins)})
        return client, self.attach(client)


def chosen_speedups(asked: bool | None) -> Speedups | None:
    """The extension, or None to go without it.

    Args:
        asked: the setting `speedups`: None for where it can be used, True to insist on it.

    Raises:
        ConfigError: it is insisted on and cannot be used here.
    """
    if asked is False:
        return None
    found = _found()
    if isinstance(found, Speedups):
        return found
    if asked:
        raise ConfigError(
            f"speedups=True, but {found}. Install it where the clients run, which is in Spark's "
            "Python workers, from the folder speedups/ of Millstream's source (`pip install "
            "./speedups`; it needs a C compiler), or leave speedups at None, to go without it."
        )
    return None


def told_speedups(asked: bool | None) -> str:
    """How records are read and written, for the log.

    Args:
        asked: as for `chosen_speedups`.
    """
    if asked is False:
        return "one by one, since speedups=False"
    found = _found()
    return "as columns" if isinstance(found, Speedups) else f"one by one, since {found}"


def _found() -> Speedups | str:
    """The extension, or why there is none."""
    module = extension()
    if isinstance(module, str):
        return module
    reason = module.UNAVAILABLE_BECAUSE
    if reason is None and _SEPARATOR in module.PLUGIN:
        reason = f"its path contains a {_SEPARATOR!r}"
    if reason is not None:
        return f"millstream-speedups cannot be used: {reason}"
    return Speedups(module.PLUGIN, module.attach)
