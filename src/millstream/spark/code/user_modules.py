"""Pickles user modules by value.

The pickle includes the variables of the modules, the globals of their functions, and modules that
functions import lazily.

cloudpickle recreates a function with its own globals dictionary, separate from the function's
module. Here, the functions of a module share the dictionary of the recreated module, as they do in
the driver.

A function may import a module when it is called (`import settings` in its body, for example to
avoid a circular import). Such imports are found in the function's code, and the modules are pickled
with the function. While `recreated_modules()` is active, recreated modules are in the worker's
`sys.modules`, so the import statement returns them with the driver's variables and does not load
their files again.
"""

from __future__ import annotations

import dis
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

#: Attributes that the import system sets. A recreated module has different values, or none.
_IMPORT_MACHINERY: Final = frozenset(
    {"__builtins__", "__cached__", "__loader__", "__spec__", "__path__"}
)
#: Attributes for relative imports and messages, which are set even in an `EmptyModule`.
_IDENTITY: Final = ("__package__", "__file__")
_MAIN: Final = "__main__"
#: Functions that import a module by name.
_IMPORTERS: Final = frozenset({"import_module", "__import__"})

_Reduced = tuple[Any, ...]


class UserModules:
    """The driver's modules that are pickled by value, for one pickle.

    `names` contains modules, and packages whose modules are all pickled by value.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._empty: dict[str, EmptyModule] = {}
        self._contents: dict[str, PackageContents] = {}
        #: The objects that represent functions' globals, by the `id()` of the module's dictionary.
        self.globals_by_id = {
            id(vars(module)): ModuleGlobals(self.empty(module))
            for name, module in list(sys.modules.items())
            if isinstance(module, ModuleType) and name in self
        }

    def __contains__(self, name: str) -> bool:
        if name == _MAIN:
            return True
        is_listed = any(parent in self._names for parent in _with_parents(name))
        return is_listed and not is_compiled(sys.modules.get(name))

    def empty(self, module: ModuleType) -> EmptyModule:
        """Return the module's representation in this pickle, without its variables."""
        return self._empty.setdefault(module.__name__, EmptyModule(module))

    def reduce(self, module: ModuleType) -> _Reduced:
        return _reduced_module(self.empty(module), _variables(module))

    def imported_by(self, function: FunctionType) -> list[ModuleType | PackageContents]:
        """Return the loaded modules that a function imports when it is called."""
        found: list[ModuleType | PackageContents] = []
        for name, is_needed_whole in imported_names(function):
            for parent in _with_parents(name)[1:]:
                found += [self._package(parent)] if self._is_loaded(parent) else []
            if self._is_loaded(name):
                module = sys.modules[name]
                is_package = hasattr(module, "__path__") and not is_needed_whole
                found.append(self._package(name) if is_package else module)
        return found

    def _is_loaded(self, name: str) -> bool:
        return name != _MAIN and name in self and isinstance(sys.modules.get(name), ModuleType)

    def _package(self, name: str) -> PackageContents:
        contents = PackageContents(self.empty(sys.modules[name]), sys.modules[name])
        return self._contents.setdefault(name, contents)


def is_compiled(module: object) -> bool:
    """Return whether a module is a compiled extension.

    Compiled extensions cannot be pickled by value.
    """
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES))


class EmptyModule:
    """Represents a module without its variables in a pickle."""

    def __init__(self, module: ModuleType) -> None:
        self.name = module.__name__
        attributes = vars(module)
        self._identity: dict[str, Any] = {n: attributes[n] for n in _IDENTITY if n in attributes}
        if "__path__" in attributes:
            self._identity["__path__"] = [str(folder) for folder in attributes["__path__"]]

    def __reduce__(self) -> _Reduced:
        return new_module, (self.name, self._identity)


@dataclass(frozen=True, eq=False)
class PackageContents:
    """Represents a package without its submodules in a pickle.

    The package's own variables are included. The import of one submodule does not need the others,
    which may contain unpicklable objects.
    """

    empty: EmptyModule
    package: ModuleType

    def __reduce__(self) -> _Reduced:
        prefix = f"{self.package.__name__}."
        own = {
            name: value
            for name, value in _variables(self.package).items()
            if not (isinstance(value, ModuleType) and value.__name__.startswith(prefix))
        }
        return _reduced_module(self.empty, own)


class ModuleGlobals(dict[str, Any]):
    """Represents a module's dictionary in a pickle.

    The functions of the module have this dictionary as their globals.
    """

    def __init__(self, module: EmptyModule) -> None:
        super().__init__()
        self._module = module

    def __reduce_ex__(self, _: object) -> _Reduced:
        return vars, (self._module,)


def imported_names(function: FunctionType) -> list[tuple[str, bool]]:
    """Return the full names of the modules that a function imports when it is called.

    `from a import b` also yields `a.b`, which is not necessarily a module. The flag of each name is
    True if the module is needed with its submodules: after `import a`, the function may use `a.b`,
    whereas `from a import b` names the submodule.
    """
    package = function.__globals__.get("__package__")
    return [
        (_absolute_name(name, package), whole) for name, whole in _imports_of(function.__code__)
    ]


def new_module(name: str, identity: Mapping[str, Any]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(identity)
    return module


def same_module(module: ModuleType) -> ModuleType:
    """Return the module. Unpickling sets its variables afterwards."""
    return module


def fill_module(module: ModuleType, variables: Mapping[str, Any]) -> None:
    vars(module).update(variables)
    _register(module)


def fill_function(
    function: FunctionType, state: tuple[Callable[[Any, Any], object], Any, list[ModuleType]]
) -> None:
    """Set the state of a function with lazy imports in the worker.

    The state consists of cloudpickle's state setter, its argument, and the imported modules.
    """
    fill, argument, _ = state
    fill(function, argument)


_registration_lock = threading.Lock()
#: For each active `recreated_modules()`, the names of the modules that it added to `sys.modules`.
_registered_names: Final[list[set[str]]] = []


@contextmanager
def recreated_modules() -> Iterator[None]:
    """Add recreated modules to `sys.modules` inside the context.

    The first module of each name is kept, so that a later pickle with the same module, such as a
    command, does not overwrite changes that functions made to the module's variables.
    """
    names: set[str] = set()
    with _registration_lock:
        _registered_names.append(names)
    try:
        yield
    finally:
        with _registration_lock:
            _registered_names.remove(names)
            for name in names:
                sys.modules.pop(name, None)


def _register(module: ModuleType) -> None:
    name = module.__name__
    with _registration_lock:
        if not _registered_names or name == _MAIN or name in sys.modules:
            return
        names = _registered_names[-1]
        sys.modules[name] = module
        names.add(name)
        # An import statement reads submodules from the attributes of their packages.
        parent, _, last = name.rpartition(".")
        if parent in names:
            vars(sys.modules[parent]).setdefault(last, module)
        for other in names:
            parent, _, last = other.rpartition(".")
            if parent == name:
                vars(module).setdefault(last, sys.modules[other])


def _reduced_module(empty: EmptyModule, variables: dict[str, Any]) -> _Reduced:
    # The variables are state, which is set after the module is memoized, because modules may refer
    # to each other in a cycle.
    return same_module, (empty,), variables, None, None, fill_module


def _variables(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in _IMPORT_MACHINERY}


def _with_parents(name: str) -> list[str]:
    """Return `a.b.c`, `a.b` and `a`."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _absolute_name(name: str, package: object) -> str:
    try:
        return importlib.util.resolve_name(name, package if isinstance(package, str) else None)
    except ImportError:
        # This is a relative import outside a package, which fails in the driver as well.
        return name


_found_in_code: WeakKeyDictionary[CodeType, tuple[tuple[str, bool], ...]] = WeakKeyDictionary()


def _imports_of(code: CodeType) -> tuple[tuple[str, bool], ...]:
    """Return the imports as written in the code: relative names have leading dots."""
    found = _found_in_code.get(code)
    if found is None:
        found = _found_in_code[code] = tuple(dict.fromkeys(_find_imports(code)))
    return found


def _find_imports(code: CodeType) -> Iterator[tuple[str, bool]]:
    constants: list[Any] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, names = constants[-2:]
            name = "." * level + str(instruction.argval)
            yield name, not names
            joint = "" if name.endswith(".") else "."
            yield from ((f"{name}{joint}{each}", True) for each in names or ())
        elif "CONST" in instruction.opname or instruction.opname == "LOAD_SMALL_INT":
            constants.append(instruction.argval)
    if _IMPORTERS.intersection(code.co_names):
        yield from ((each, True) for each in code.co_consts if isinstance(each, str) and each)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports_of(constant)


def module_path() -> tuple[str, ...]:
    """Return `sys.path`, with the working directory as an absolute path."""
    return tuple(path or os.getcwd() for path in sys.path)


@contextmanager
def driver_modules(path: Sequence[str]) -> Iterator[None]:
    """Make `import` find the driver's modules inside the context.

    Module files are found if the worker runs on the driver's machine. The worker's own folders,
    which contain Spark's modules, precede those of the driver's `sys.path`. Modules that were
    pickled by value take precedence over their files and have the driver's variables.
    """
    added = [folder for folder in dict.fromkeys(path) if folder not in sys.path]
    sys.path.extend(added)
    try:
        with recreated_modules():
            yield
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)
