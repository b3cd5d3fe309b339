"""User modules that travel as code: their variables, their functions' globals, and later imports.

cloudpickle recreates a function with a dictionary of globals of its own, apart from the module that
the function belongs to. Here both are the same: functions of a module share the dictionary of the
recreated module, as they do in the driver.

A function may import a module when it is called (`import settings` in its body, for example against
a circle of imports). Such modules are found in the function's code and travel with the function.
While `arrivals()` is active, recreated modules are in `sys.modules` of the worker, so that the
import statement returns them with the driver's variables and does not load their files again.
"""

from __future__ import annotations

import dis
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

#: Set by the import system; a recreated module gets its own, or has none.
_IMPORT_MACHINERY: Final = frozenset(
    {"__builtins__", "__cached__", "__loader__", "__spec__", "__path__"}
)
#: What relative imports and messages need, even where no other variable of a module travels.
_IDENTITY: Final = ("__package__", "__file__")
_MAIN: Final = "__main__"
#: Functions that import the module whose name they are given.
_IMPORTERS: Final = frozenset({"import_module", "__import__"})

_Reduced = tuple[Any, ...]


class UserModules:
    """The modules of the driver that travel as code in one pickle.

    Args:
        names: of those modules, and of packages whose modules all travel.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._empty: dict[str, EmptyModule] = {}
        self._contents: dict[str, PackageContents] = {}
        #: What stands for the globals of functions: by the `id()` of a module's dictionary.
        self.globals_by_id = {
            id(vars(module)): Globals(self.empty(module))
            for name, module in list(sys.modules.items())
            if isinstance(module, ModuleType) and name in self
        }

    def __contains__(self, name: str) -> bool:
        """Whether the module of that name travels as code."""
        if name == _MAIN:
            return True
        is_listed = any(parent in self._names for parent in _with_parents(name))
        return is_listed and not is_compiled(sys.modules.get(name))

    def empty(self, module: ModuleType) -> EmptyModule:
        """The module without variables; always the same object for a module."""
        return self._empty.setdefault(module.__name__, EmptyModule(module))

    def reduce(self, module: ModuleType) -> _Reduced:
        """How to recreate a module with all of its variables."""
        return _filled_with(self.empty(module), _variables(module))

    def imported_by(self, function: FunctionType) -> list[ModuleType | PackageContents]:
        """The modules that a function imports when it is called, as far as they are loaded here.

        Args:
            function: one that travels as code.
        """
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
    """Whether a module is a compiled extension, which cannot travel as code."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES))


class EmptyModule:
    """Stands in a pickle for a module without its variables."""

    def __init__(self, module: ModuleType) -> None:
        self.name = module.__name__
        known = vars(module)
        self._identity: dict[str, Any] = {n: known[n] for n in _IDENTITY if n in known}
        if "__path__" in known:
            self._identity["__path__"] = [str(folder) for folder in known["__path__"]]

    def __reduce__(self) -> _Reduced:
        return new_module, (self.name, self._identity)


class PackageContents:
    """Stands in a pickle for a package with its own variables, but without its submodules.

    An import of one submodule does not need the others, which may hold what cannot be pickled.
    """

    def __init__(self, empty: EmptyModule, package: ModuleType) -> None:
        self._empty = empty
        self.package = package

    def __reduce__(self) -> _Reduced:
        prefix = f"{self.package.__name__}."
        own = {
            name: value
            for name, value in _variables(self.package).items()
            if not (isinstance(value, ModuleType) and value.__name__.startswith(prefix))
        }
        return _filled_with(self._empty, own)


class Globals(dict[str, Any]):
    """Stands in a pickle for a module's dictionary, as the globals of the module's functions."""

    def __init__(self, module: EmptyModule) -> None:
        super().__init__()
        self._module = module

    def __reduce_ex__(self, _: object) -> _Reduced:
        return vars, (self._module,)


def imported_names(function: FunctionType) -> list[tuple[str, bool]]:
    """The full names of the modules that a function imports when it is called.

    `from a import b` gives `a.b` as well, which need not be a module.

    Returns:
        Names, each with whether the module is needed with its submodules: after `import a`, the
        function may use `a.b`; `from a import b` names the submodule.
    """
    package = function.__globals__.get("__package__")
    return [(_absolute(name, package), whole) for name, whole in _imports_of(function.__code__)]


def new_module(name: str, identity: Mapping[str, Any]) -> ModuleType:
    """In the worker: a module that has no variables yet."""
    module = ModuleType(name)
    vars(module).update(identity)
    return module


def same_module(module: ModuleType) -> ModuleType:
    """In the worker: the module itself, which gets its variables next."""
    return module


def fill_module(module: ModuleType, variables: Mapping[str, Any]) -> None:
    """In the worker: give a module its variables."""
    vars(module).update(variables)
    _arrived(module)


def fill_function(
    function: FunctionType, state: tuple[Callable[[Any, Any], object], Any, list[ModuleType]]
) -> None:
    """In the worker: complete a function that has imports in its body.

    Args:
        function: the function.
        state: cloudpickle's function that completes one, its argument, and the modules that
            `function` imports when it is called.
    """
    fill, argument, _ = state
    fill(function, argument)


_changing_arrivals = threading.Lock()
#: For each active `arrivals()`, the names of the modules that it has put into `sys.modules`.
_names_arrived: Final[list[set[str]]] = []


@contextmanager
def arrivals() -> Iterator[None]:
    """Put recreated modules into `sys.modules`, and take them out again at the end.

    The first module of a name stays: a later pickle with the same module, such as a command, does
    not undo what functions did to its variables.
    """
    names: set[str] = set()
    with _changing_arrivals:
        _names_arrived.append(names)
    try:
        yield
    finally:
        with _changing_arrivals:
            _names_arrived.remove(names)
            for name in names:
                sys.modules.pop(name, None)


def _arrived(module: ModuleType) -> None:
    name = module.__name__
    with _changing_arrivals:
        if not _names_arrived or name == _MAIN or name in sys.modules:
            return
        names = _names_arrived[-1]
        sys.modules[name] = module
        names.add(name)
        # An import statement reads submodules from the variables of their packages.
        parent, _, last = name.rpartition(".")
        if parent in names:
            vars(sys.modules[parent]).setdefault(last, module)
        for other in names:
            parent, _, last = other.rpartition(".")
            if parent == name:
                vars(module).setdefault(last, sys.modules[other])


def _filled_with(empty: EmptyModule, variables: dict[str, Any]) -> _Reduced:
    # The variables are state, which is set after the module is known to the pickle: modules may
    # refer to each other in a circle.
    return same_module, (empty,), variables, None, None, fill_module


def _variables(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in _IMPORT_MACHINERY}


def _with_parents(name: str) -> list[str]:
    """`a.b.c`, `a.b` and `a`."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _absolute(name: str, package: object) -> str:
    try:
        return importlib.util.resolve_name(name, package if isinstance(package, str) else None)
    except ImportError:
        # A relative import outside of a package: fails when it is executed, in the driver as well.
        return name


_found_in_code: WeakKeyDictionary[CodeType, tuple[tuple[str, bool], ...]] = WeakKeyDictionary()


def _imports_of(code: CodeType) -> tuple[tuple[str, bool], ...]:
    """The same for code: names as they are written, relative ones with leading dots."""
    known = _found_in_code.get(code)
    if known is None:
        known = _found_in_code[code] = tuple(dict.fromkeys(_find_imports(code)))
    return known


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
