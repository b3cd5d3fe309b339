"""Turning a stream thread's code into bytes that a worker can run.

Spark ships closures, not packages. Lambdas, closures and everything of the main script travel as
code; so do the user's own modules that are not installed in the environment (`import helpers`
beside the script), however deep they are reached. Installed packages travel as names and must be
installed on the executors too.

A module that travels as code arrives with copies of its variables as they were in the driver. An
`import` statement inside a function returns it if the driver has imported it as well. Other modules
of the user's are found on a local master only, where workers get the driver's path of modules.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import pickle
import site
import sys
import sysconfig
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import cloudpickle
import msgspec

from millstream.errors import NotPicklableError, text_of
from millstream.spark.code.data_classes import reduce_data_class, reduce_meta
from millstream.spark.code.loguru_sinks import has_sinks, reduce_sinks
from millstream.spark.code.named_objects import (
    is_importable,
    reduce_code,
    reduce_composed,
    reduce_named,
)
from millstream.spark.code.unpicklable import Culprit, find_culprit
from millstream.spark.code.user_modules import UserModules, fill_function, is_compiled

logger = logging.getLogger(__name__)

#: Above this many bytes a plan is suspicious: it most likely drags data along.
LARGE_PLAN_BYTES: Final = 10 * 1024 * 1024

#: What each worker has, wherever it is installed; cloudpickle cannot pickle itself as code.
_PRESENT: Final = frozenset({"millstream", "cloudpickle"})

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
        and name.partition(".")[0] not in _PRESENT
        and (places := _places(module))
        and not any(map(_is_installed, places))
    ]


def _dumps(thing: Any, what: str) -> bytes:
    with _pickled_by_value(user_modules()) as by_value:
        modules = UserModules(by_value)

        def attempt(part: Any) -> bytes:
            buffer = io.BytesIO()
            _Pickler(buffer, modules).dump(part)
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
    reason = culprit.reason or text_of(error)
    return NotPicklableError(
        f"{culprit.path} is a {culprit.type_name}, which cannot be shipped to Spark's workers "
        f"({reason}). Create it in the worker: in a processor's init(), in the supplier, or "
        "in the function on first use; pass only what it is made from.",
        path=culprit.path,
        type_name=culprit.type_name,
        node=culprit.node,
    )


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    return reduce_code(code, cloudpickle.Pickler.dispatch_table[CodeType])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, extended by modules, objects and classes that it cannot ship."""

    dispatch_table: Final = ChainMap({CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)

    def __init__(self, file: io.BytesIO, modules: UserModules) -> None:
        super().__init__(file)
        self._modules = modules
        self._is_trial = False
        self.globals_ref.update(modules.globals_by_id)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            if obj.__name__ in self._modules:
                return self._modules.reduce(obj)
            if is_compiled(obj):
                return importlib.import_module, (obj.__name__,)
            return NotImplemented
        if isinstance(obj, msgspec.Meta):
            return reduce_meta(obj)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type):
            is_by_value = isinstance(reduced, tuple) and len(reduced) == 6
            return reduce_data_class(obj, reduced) if is_by_value else reduced
        if isinstance(obj, FunctionType):
            return reduced if reduced is NotImplemented else self._reduce_function(obj, reduced)
        if reduced is NotImplemented and type(obj) not in self.dispatch_table:
            return self._reduce_object(obj)
        return reduced

    def _reduce_function(self, function: FunctionType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        composed = reduce_composed(function)
        if composed is not None:
            return composed
        imported = self._modules.imported_by(function)
        if not imported:
            return reduced
        make, arguments, state, _, _, fill = reduced
        return make, arguments, (fill, state, imported), None, None, fill_function

    def _reduce_object(self, thing: Any) -> Any:
        """What pickle itself would do, unless that is a name which workers cannot import."""
        if has_sinks(thing):
            # A sink may use the logger that it belongs to.
            return (object, ()) if self._is_trial else reduce_sinks(thing, self._is_picklable)
        composed = reduce_composed(thing)
        reduced = thing.__reduce_ex__(self.proto) if composed is None else composed
        if not isinstance(reduced, str) or is_importable(thing, reduced, self._modules):
            return reduced
        named = reduce_named(thing, reduced)
        if named is None:
            raise pickle.PicklingError(
                f"Python pickles it as the variable {reduced!r} of the module "
                f"{getattr(thing, '__module__', None)!r}, which workers cannot import"
            )
        return named

    def _is_picklable(self, thing: object) -> bool:
        trial = _Pickler(io.BytesIO(), self._modules)
        trial._is_trial = True
        try:
            trial.dump(thing)
        except Exception:
            return False
        return True


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


def _places(module: ModuleType) -> list[str]:
    """The file of a module of Python code, or the folders of a package without one.

    Compiled extensions cannot travel as code: they have none.
    """
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return [] if is_compiled(module) else [file]
    return [os.path.join(folder, "") for folder in getattr(module, "__path__", ())]


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
