"""Turning a stream thread's code into bytes that a worker can run.

Spark ships closures, not packages. Lambdas, closures and everything of the main script travel as
code; so do the user's own modules that are not installed in the environment (`import helpers`
beside the script), however deep they are reached. Installed packages travel as names and must be
installed on the executors too.

A module that travels as code arrives with copies of its variables as they were in the driver. It
cannot be found by an `import` statement inside a function; on a local master, where the driver's
path of modules is handed to the workers, it can.
"""

from __future__ import annotations

import importlib.machinery
import io
import logging
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import cloudpickle
import msgspec

from millstream.errors import NotPicklableError
from millstream.spark.code.data_classes import reduce_data_class, reduce_meta
from millstream.spark.code.unpicklable import Culprit, find_culprit

logger = logging.getLogger(__name__)

#: Above this many bytes a plan is suspicious: it most likely drags data along.
LARGE_PLAN_BYTES: Final = 10 * 1024 * 1024

#: What a module is made of by the import system, and what the worker makes anew.
_IMPORT_MACHINERY: Final = frozenset(
    {"__builtins__", "__cached__", "__loader__", "__spec__", "__path__"}
)

#: cloudpickle keeps one list per process of the modules to pickle by value.
_registering = threading.Lock()


def ship(thing: Any, what: str) -> bytes:
    """Pickle what a stream thread is to run.

    Args:
        thing: what to pickle, with all it refers to.
        what: what to call it in messages, for example `the topology`.

    Raises:
        NotPicklableError: something cannot be pickled; the error names it and where it is reached.
    """
    data = _dumps(thing, what)
    if len(data) > LARGE_PLAN_BYTES:
        logger.warning(
            "Shipping %s to Spark's workers takes %.1f MB for each stream thread. It most likely "
            "holds data through a closure or a global variable; load that in the worker instead, "
            "for example in a processor's init().",
            what,
            len(data) / 1e6,
        )
    return data


def dumps(thing: Any) -> bytes:
    """Pickle the data of a command. See `ship`."""
    return _dumps(thing, "the command")


def user_modules() -> list[ModuleType]:
    """The imported modules that workers cannot import: the user's own, not installed ones."""
    # A copy, because other threads may import meanwhile.
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and name == getattr(module, "__name__", None)
        and name != "__main__"
        and name.partition(".")[0] != "millstream"
        and _is_source(module)
        and not _is_installed(str(module.__file__))
    ]


def _dumps(thing: Any, what: str) -> bytes:
    with _pickled_by_value(user_modules()) as by_value:

        def attempt(part: Any) -> bytes:
            buffer = io.BytesIO()
            _Pickler(buffer, by_value).dump(part)
            return buffer.getvalue()

        try:
            return attempt(thing)
        except Exception as error:
            raise _explained(thing, what, attempt, error) from error


def _explained(
    thing: Any, what: str, attempt: Callable[[Any], bytes], error: Exception
) -> NotPicklableError:
    try:
        culprit = find_culprit(thing, what, attempt)
    except Exception as failure:
        # The search looks into objects of the user's, whose attributes may raise when read.
        logger.debug("The search for what cannot be pickled failed", exc_info=failure)
        culprit = Culprit(what, type(thing).__name__, "", None)
    reason = culprit.reason or str(error)
    return NotPicklableError(
        f"{culprit.path} is a {culprit.type_name}, which cannot be shipped to Spark's workers "
        f"({reason}). Create it in the worker: in a processor's init(), in the supplier, or "
        "in the function on first use; pass only what it is made from.",
        path=culprit.path,
        type_name=culprit.type_name,
        node=culprit.node,
    )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, but a module that travels as code may refer to itself or to its importer."""

    def __init__(self, file: io.BytesIO, by_value: frozenset[str]) -> None:
        super().__init__(file)
        self._by_value = by_value

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and obj.__name__ in self._by_value:
            variables = {
                name: value for name, value in vars(obj).items() if name not in _IMPORT_MACHINERY
            }
            # The variables are state, set after the module is known to the pickle: cloudpickle's
            # own way, arguments of the constructor, never ends when modules refer to each other.
            return new_module, (obj.__name__,), variables, None, None, fill_module
        if isinstance(obj, msgspec.Meta):
            return reduce_meta(obj)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
            return reduce_data_class(obj, reduced)
        return reduced


def new_module(name: str) -> ModuleType:
    """In the worker: an empty module for one that travels as code."""
    return ModuleType(name)


def fill_module(module: ModuleType, variables: dict[str, Any]) -> None:
    """In the worker: give such a module its variables."""
    vars(module).update(variables)


@contextmanager
def _pickled_by_value(modules: list[ModuleType]) -> Iterator[frozenset[str]]:
    with _registering:
        # Those that the user has registered stay registered.
        before = cloudpickle.list_registry_pickle_by_value()
        added = [module for module in modules if module.__name__ not in before]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield frozenset(cloudpickle.list_registry_pickle_by_value())
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def _is_source(module: ModuleType) -> bool:
    """Whether the module is Python code from a file; compiled extensions cannot travel as code."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return False
    return not file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


@lru_cache(maxsize=100_000)
def _is_installed(file: str) -> bool:
    # Both as it is written and with links resolved: an environment may be linked into place.
    places = _installed_places()
    return any(path.startswith(places) for path in (os.path.abspath(file), os.path.realpath(file)))


@lru_cache(maxsize=1)
def _installed_places() -> tuple[str, ...]:
    """The folders of the standard library and of installed packages, each with a slash behind.

    Not the whole prefix: on many systems that is /usr, under which applications live as well.
    """
    packages = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    packages.update(site.getsitepackages())
    packages.add(site.getusersitepackages())
    standard = {os.path.dirname(os.__file__)}
    standard.update(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
    linked = {folder for place in packages for folder in _linked_folders(Path(place))}
    places = packages | standard | linked
    places |= {os.path.realpath(place) for place in places}
    return tuple(sorted(place.rstrip(os.sep) + os.sep for place in places))


def _linked_folders(packages: Path) -> Iterator[str]:
    """The folders that an editable installation puts on the path, by its .pth file."""
    try:
        links = sorted(packages.glob("*.pth"))
    except OSError:
        # A folder that cannot be listed has nothing installed that we could import.
        return
    for link in links:
        for line in link.read_text(errors="replace").splitlines():
            is_code = line.startswith(("import ", "import\t", "#"))
            folder = packages / line.strip()
            if line.strip() and not is_code and folder.is_dir():
                yield str(folder.resolve())
