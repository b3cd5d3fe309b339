"""Pickles a stream thread's code so that a worker can run it.

Spark ships closures, not packages. Lambdas, closures and everything in the main script are pickled
by value. The same applies to the user's own modules that are not installed in the environment (such
as `helpers` next to the script), even if they are referenced only indirectly. Installed packages
are pickled by name and must be installed on the executors as well.

In the worker, a module that was pickled by value has copies of the driver's variables. An `import`
statement inside a function returns this module if the driver has imported it too. Other user
modules are only found with a local master, whose workers use the driver's `sys.path`.
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
from millstream.spark.code.named_objects import (
    is_importable,
    is_loguru_core,
    new_code,
    reduce_composed,
    reduce_loguru_core,
    reduce_named,
)
from millstream.spark.code.unpicklable import UnpicklableObject, find_unpicklable
from millstream.spark.code.user_modules import UserModules, fill_function, is_compiled

logger = logging.getLogger(__name__)

#: The size of pickled code above which a warning is logged, because such code most likely contains
#: data by accident.
LARGE_PLAN_BYTES: Final = 10 * 1024 * 1024

#: Packages that every worker has. cloudpickle cannot pickle itself by value.
_INSTALLED_ON_WORKERS: Final = frozenset({"millstream", "cloudpickle"})

#: cloudpickle has one process-wide list of the modules to pickle by value.
_registry_lock = threading.Lock()


def ship(thing: Any, what: str) -> bytes:
    """Pickle an object, called `what` in messages, with everything it refers to.

    Raises a `NotPicklableError`, which contains the path to the object that cannot be pickled.
    """
    data = _dumps(thing, what)
    if len(data) > LARGE_PLAN_BYTES:
        logger.warning(
            "Shipping %s to Spark's workers takes %.1f MB per stream thread. A closure or a global "
            "variable most likely contains data; load the data in the worker instead, for example "
            "in a processor's init().",
            what,
            len(data) / 1e6,
        )
    return data


def dumps(thing: Any) -> bytes:
    return _dumps(thing, "the command")


def user_modules() -> list[ModuleType]:
    """Return the imported modules that are not installed.

    Workers cannot import these modules.
    """
    # A copy, because other threads may import modules concurrently.
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and name == getattr(module, "__name__", None)
        and name != "__main__"
        and name.partition(".")[0] not in _INSTALLED_ON_WORKERS
        and (locations := _locations(module))
        and not any(map(_is_installed, locations))
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
            raise _not_picklable_error(thing, what, attempt, error) from error


def _not_picklable_error(
    thing: Any, what: str, attempt: Callable[[Any], bytes], error: Exception
) -> NotPicklableError:
    try:
        culprit = find_unpicklable(thing, what, attempt)
    except Exception as failure:
        # The search reads attributes of the user's objects, which may raise exceptions.
        logger.debug("The search for the unpicklable object failed", exc_info=failure)
        culprit = UnpicklableObject(what, type(thing).__name__, "", None)
    reason = culprit.reason or text_of(error)
    return NotPicklableError(
        f"{culprit.path} is a {culprit.type_name}, which cannot be shipped to Spark's workers "
        f"({reason}). Create it in the worker: in a processor's init(), in the supplier, or "
        "in the function on first use; ship only the values needed to create it.",
        path=culprit.path,
        type_name=culprit.type_name,
        node=culprit.node,
    )


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    """Reduce a code object with its file name for tracebacks.

    Since version 3.1.3, cloudpickle replaces the file name.
    """
    reduced = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return new_code, (code.co_filename, *reduced)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Extends cloudpickle to modules, objects and classes that it cannot pickle."""

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
        """Return the reduced value of an object.

        This is the default value, unless the default is a name that workers cannot import.
        """
        if is_loguru_core(thing):
            # A sink may refer to its own logger.
            return (object, ()) if self._is_trial else reduce_loguru_core(thing, self._is_picklable)
        composed = reduce_composed(thing)
        reduced = thing.__reduce_ex__(self.proto) if composed is None else composed
        if not isinstance(reduced, str) or is_importable(thing, reduced, self._modules):
            return reduced
        named = reduce_named(thing, reduced)
        if named is None:
            raise pickle.PicklingError(
                f"Python pickles this object as the variable {reduced!r} of the module "
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
    with _registry_lock:
        # Modules that the user has registered stay registered.
        before = cloudpickle.list_registry_pickle_by_value()
        added = [module for module in modules if module.__name__ not in before]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield frozenset(cloudpickle.list_registry_pickle_by_value())
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def _locations(module: ModuleType) -> list[str]:
    """Return the file of a Python module, or the folders of a namespace package.

    Empty for compiled extensions, which cannot be pickled by value.
    """
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return [] if is_compiled(module) else [file]
    return [os.path.join(folder, "") for folder in getattr(module, "__path__", ())]


@lru_cache(maxsize=100_000)
def _is_installed(file: str) -> bool:
    # Check the path with and without resolved symlinks: an environment may be a symlink.
    folders = _installed_folders()
    return any(path.startswith(folders) for path in (os.path.abspath(file), os.path.realpath(file)))


@lru_cache(maxsize=1)
def _installed_folders() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages.

    The folders end with a slash. They do not include all of `sys.prefix`, which is /usr on many
    systems and may contain applications as well.
    """
    packages = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    packages.update(site.getsitepackages())
    packages.add(site.getusersitepackages())
    standard = {os.path.dirname(os.__file__)}
    standard.update(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
    linked_folders = {linked for package in packages for linked in _linked_folders(Path(package))}
    folders = packages | standard | linked_folders
    folders |= {os.path.realpath(folder) for folder in folders}
    return tuple(sorted(folder.rstrip(os.sep) + os.sep for folder in folders))


def _linked_folders(packages: Path) -> Iterator[str]:
    """Yield the folders that .pth files of editable installations add to `sys.path`."""
    try:
        links = sorted(packages.glob("*.pth"))
    except OSError:
        # Packages in an unreadable folder cannot be imported anyway.
        return
    for link in links:
        for line in link.read_text(errors="replace").splitlines():
            is_code = line.startswith(("import ", "import\t", "#"))
            folder = packages / line.strip()
            if line.strip() and not is_code and folder.is_dir():
                yield str(folder.resolve())
