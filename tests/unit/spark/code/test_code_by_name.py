"""Modules that Python pickles by name are shipped as code as well, and later imports find the
same modules."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import threading
import typing
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache, singledispatch, singledispatchmethod
from operator import attrgetter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.machine import other_versions

from millstream.errors import NotPicklableError
from millstream.spark.code import shipping
from millstream.spark.code.user_modules import UserModules, driver_modules

#: Evaluates an expression over the unpickled `it`, as a worker does.
_WORKER = """
import pickle, sys
from millstream.spark.code.user_modules import driver_modules

def called(data, path):
    with driver_modules(path):
        return pickle.loads(data)()

with driver_modules(()):
    it = pickle.load(sys.stdin.buffer)
    print({expression})
"""


def evaluate_in_worker(data: bytes, expression: str = "it()") -> str:
    """Evaluate an expression in a new process without access to the user's files.

    Args:
        data: a pickle.
        expression: over `it`, the content of the pickle.
    """
    run = subprocess.run(
        [sys.executable, "-c", _WORKER.replace("{expression}", expression)],
        input=data,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode().strip()


@pytest.fixture
def user_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder on the import path whose modules are unloaded at the end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def import_module(folder: Path, name: str, source: str) -> ModuleType:
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    __import__(name)
    return sys.modules[name]


_HELPERS = """
import functools
import importlib
import typing

import settings


class Missing:
    __slots__ = ("note",)

    def __init__(self, note):
        self.note = note

    def __reduce__(self):
        return "MISSING"


MISSING = Missing("none")
UserId = typing.NewType("UserId", int)
P = typing.ParamSpec("P")


@functools.lru_cache(maxsize=7)
def cached(value=None):
    return settings.FACTOR


def calls_cached():
    return cached(1)


@functools.cache
def recursive(n=3):
    return settings.FACTOR if n == 0 else recursive(n - 1)


def lazy():
    import settings as late
    return late.FACTOR


def lazy_name():
    from settings import FACTOR
    return FACTOR


def lazy_by_function():
    return importlib.import_module("settings").FACTOR


def lazy_within():
    return (lambda: __import__("settings").FACTOR)()


def parts():
    return len([MISSING, UserId(1), P]) + settings.FACTOR - 3


@functools.singledispatch
def generic(value=None):
    return "any"


@generic.register
def _(value: int):
    return settings.FACTOR


def dispatched():
    return generic(1)


class Price:
    @functools.lru_cache
    def method(self):
        return settings.FACTOR

    @classmethod
    @functools.cache
    def of_class(cls):
        return settings.FACTOR

    @staticmethod
    @functools.cache
    def static():
        return settings.FACTOR

    @functools.cached_property
    def rate(self):
        return settings.FACTOR

    @functools.singledispatchmethod
    def by_type(self, value=None):
        return "any"

    @by_type.register
    def _(self, value: int):
        return settings.FACTOR


price = Price()


def reads_rate():
    return Price().rate


def reads_by_type():
    return price.by_type(1)
"""


_FUNCTIONS = (
    *("cached", "calls_cached", "recursive", "lazy", "lazy_name", "lazy_by_function"),
    *("lazy_within", "parts", "dispatched", "Price.of_class", "Price.static", "price.method"),
    *("reads_rate", "reads_by_type"),
)


@pytest.mark.extended
@pytest.mark.parametrize("is_local", [False, True], ids=["another_host", "local"])
def test_variables_of_modules_have_the_drivers_values(user_files: Path, is_local: bool) -> None:
    """Goal: a setting changed by the driver is visible to a function regardless of how it accesses
    the setting.

    Method: each function is in a separate pickle. The worker either can or cannot load the module's
    file, in which the setting is still 1.
    """
    settings: Any = import_module(user_files, "settings", "FACTOR = 1\n")
    helpers: Any = import_module(user_files, "helpers", _HELPERS)
    settings.FACTOR = 7
    shipped = {name: shipping.ship(attrgetter(name)(helpers), "f") for name in _FUNCTIONS}
    path = (str(user_files),) if is_local else ()
    seen = evaluate_in_worker(
        pickle.dumps((shipped, path)), "{n: called(p, it[1]) for n, p in it[0].items()}"
    )
    assert seen == str(dict.fromkeys(_FUNCTIONS, 7))


@pytest.mark.extended
def test_a_singleton_stays_one_object_in_several_pickles(user_files: Path) -> None:
    """Goal: `value is MISSING` holds although topology and settings are shipped separately; it also
    holds in results."""
    helpers: Any = import_module(user_files, "settings", "FACTOR = 1\n")
    helpers = import_module(user_files, "helpers", _HELPERS)
    first, second = (shipping.ship(each, "f") for each in (helpers.MISSING, [helpers.MISSING]))
    both = shipping.ship((first, second), "f")
    expression = "(lambda a, b: (a is b[0], a.note))(*map(pickle.loads, it))"
    assert evaluate_in_worker(both, expression) == "(True, 'none')"


_ONE_NAMESPACE = """
count = 0


def add():
    global count
    count += 1
"""


def test_functions_and_module_share_their_variables(user_files: Path) -> None:
    """Goal: a variable of a module that one function sets is visible to other functions."""
    counter: Any = import_module(user_files, "counter", _ONE_NAMESPACE)

    def added() -> Any:
        counter.add()
        return counter.count

    data = shipping.ship([added, counter.add], "f")
    assert evaluate_in_worker(data, "(it[1](), it[0]())") == "(None, 2)"


def test_relative_imports_and_packages_in_functions(user_files: Path) -> None:
    """Goal: each form of import finds modules of packages; submodules that are not needed are
    not shipped, so that unpicklable variables in them do no harm."""
    import_module(user_files, "shop.__init__", "")
    settings: Any = import_module(user_files, "shop.settings", "FACTOR = 1\n")
    import_module(user_files, "shop.connections", "import threading\nlock = threading.Lock()\n")
    tools: Any = import_module(
        user_files,
        "shop.tools",
        "def relative():\n    from .settings import FACTOR\n    return FACTOR\n"
        "def sibling():\n    from . import settings\n    return settings.FACTOR\n"
        "def absolute():\n    import shop.settings\n    return shop.settings.FACTOR\n"
        "def named():\n    from shop import settings as late\n    return late.FACTOR\n",
    )
    settings.FACTOR = 7
    functions = (tools.relative, tools.sibling, tools.absolute, tools.named)
    shipped = [shipping.ship(function, "f") for function in functions]
    assert (
        evaluate_in_worker(pickle.dumps(shipped), "[called(each, ()) for each in it]")
        == "[7, 7, 7, 7]"
    )


def test_namespace_packages_are_shipped(user_files: Path) -> None:
    """Goal: a folder of modules without `__init__.py` is a user package like others."""
    settings: Any = import_module(user_files, "folder.settings", "FACTOR = 1\n")
    package: Any = sys.modules["folder"]
    settings.FACTOR = 7
    assert evaluate_in_worker(shipping.ship(lambda: package.settings.FACTOR, "f")) == "7"


def test_unpicklable_variables_of_modules_imported_in_functions_are_named(user_files: Path) -> None:
    """Goal: an unpicklable module is detected at the start, and the function that needs it is
    named."""
    import_module(user_files, "held_locks", "import threading\nlock = threading.Lock()\n")

    def connect() -> Any:
        import held_locks  # type: ignore[import-not-found]

        return held_locks.lock

    with pytest.raises(NotPicklableError) as caught:
        shipping.ship(connect, "f")
    assert caught.value.path == "f → module 'held_locks' imported in its body → variable 'lock'"


def test_a_later_pickle_does_not_reset_variables_of_the_worker(user_files: Path) -> None:
    """Goal: a command that contains the same module does not reset variables that functions have
    set."""
    import_module(user_files, "counter", _ONE_NAMESPACE)

    def added() -> Any:
        import counter  # type: ignore[import-not-found]

        counter.add()
        return counter.count

    both = shipping.ship([shipping.ship(added, "f")] * 2, "f")
    assert evaluate_in_worker(both, "[pickle.loads(each)() for each in it]") == "[1, 2]"


def test_modules_are_unloaded_with_their_application(
    user_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a reused Spark process does not see variables of an earlier query."""
    settings: Any = import_module(user_files, "settings", "FACTOR = 1\n")

    def lazy() -> Any:
        import settings as late  # type: ignore[import-not-found]

        return late.FACTOR

    seen = []
    for factor in (7, 8):
        settings.FACTOR = factor
        data = shipping.ship(lazy, "f")
        monkeypatch.delitem(sys.modules, "settings")
        with driver_modules(()):
            seen.append(pickle.loads(data)())
        assert "settings" not in sys.modules
        sys.modules["settings"] = settings
    assert seen == [7, 8]


class _Rates:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    @cached_property
    def rate(self) -> bool:
        return SHARED.locked()


SHARED = threading.Lock()


@lru_cache(maxsize=10)
def cached_with_lock() -> bool:
    return SHARED.locked()


@singledispatch
def generic_with_lock(value: object) -> bool:
    return SHARED.locked()


class _ByType:
    @singledispatchmethod
    def of(self, value: object) -> bool:
        return SHARED.locked()


@pytest.mark.parametrize(
    ("thing", "path"),
    [
        (cached_with_lock, "it → __wrapped__ → global variable 'SHARED'"),
        (generic_with_lock, "it → function for object → global variable 'SHARED'"),
        (_Rates, "it → class attribute 'rate' → function → global variable 'SHARED'"),
        (
            _ByType,
            "it → class attribute 'of' → dispatcher → function for object → "
            "global variable 'SHARED'",
        ),
    ],
)
def test_unpicklable_parts_of_wrapped_functions_are_named(thing: Any, path: str) -> None:
    """Goal: the unpicklable part is named instead of a functools helper."""
    with pytest.raises(NotPicklableError) as caught:
        shipping.ship(thing, "it")
    assert caught.value.path == path


class _Odd(str):
    def __reduce__(self) -> str:
        return "ODD"


_Odd.__module__ = "__main__"


def test_objects_that_are_pickled_by_name_are_rejected() -> None:
    """Goal: an object that can only be pickled by name is rejected at the start, not in a
    worker."""
    with pytest.raises(NotPicklableError, match="'ODD' of the module '__main__'") as caught:
        shipping.ship({"odd": _Odd()}, "it")
    assert caught.value.path == "it → item 'odd'"


def test_installed_objects_are_pickled_by_name() -> None:
    """Goal: modules that workers can import are not copied."""
    shipped = [typing.NewType, re.compile("a"), str.maketrans, cache(len)]
    data = shipping.ship(shipped, "f")
    assert evaluate_in_worker(data, "it[3]('abc'), it[1].match('a') is not None") == "3 True"


def test_user_extension_modules_are_pickled_by_name() -> None:
    """Goal: workers import an extension module beside the script, whose code cannot be copied."""
    import rocksdict.rocksdict as compiled  # type: ignore[import-not-found,unused-ignore]

    modules = UserModules(frozenset({"rocksdict"}))
    assert compiled.__name__ not in modules
    assert "rocksdict" in modules


_RAISES = """
import pickle, traceback
from millstream.spark.code import shipping

def outer(value):
    return [inner(each) for each in value]

def inner(value):
    raise ValueError(value)

try:
    pickle.loads(shipping.ship(outer, "f"))([1])
except ValueError as error:
    frames = traceback.extract_tb(error.__traceback__)
    print(*(f"{f.filename}:{f.name}:{f.line}" for f in frames if f.name == "inner"))
"""


@pytest.mark.extended
@pytest.mark.parametrize("version", ["3.0.0", "3.1.3"])
def test_tracebacks_name_files_with_each_version_of_cloudpickle(
    tmp_path: Path, version: str
) -> None:
    """Goal: an error of a user's function shows file, line and source with any cloudpickle version.

    Method: the oldest supported version, and the newest one, which replaces file names.
    """
    script = tmp_path / "script.py"
    script.write_text(_RAISES)
    folder = other_versions.installed(f"cloudpickle=={version}", tmp_path / "packages")
    printed = other_versions.run(folder, [str(script)], 60)
    assert printed.strip() == f"{script}:inner:raise ValueError(value)"


class _Sink:
    def __init__(self, target: Any) -> None:
        self.target = target


def test_loguru_loggers_are_shipped_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: picklable sinks are shipped; without one, a logger writes to stderr.

    A stand-in has the attributes of loguru that its pickles contain.
    """

    class Core:
        def __init__(self, **sinks: Any) -> None:
            self.handlers = sinks
            self.min_level = 30

        def __getstate__(self) -> dict[str, Any]:
            return vars(self).copy()

        def __setstate__(self, state: dict[str, Any]) -> None:
            vars(self).update(state)

    Core.__module__, Core.__qualname__ = "loguru._logger", "Core"
    package, private = ModuleType("loguru"), ModuleType("loguru._logger")
    vars(private)["Core"] = Core
    vars(package)["logger"] = SimpleNamespace(_core=Core(default="stderr"))
    monkeypatch.setitem(sys.modules, "loguru", package)
    monkeypatch.setitem(sys.modules, "loguru._logger", private)

    def restored_core(core: Core) -> Any:
        return pickle.loads(shipping.ship(core, "a logger"))

    lock = threading.Lock()
    recursive = Core(file=_Sink(lock), text=_Sink("out"))
    recursive.handlers["uses the logger"] = _Sink(recursive)
    arrived = restored_core(recursive)
    assert list(arrived.handlers) == ["text", "uses the logger"]
    assert arrived.handlers["uses the logger"].target is arrived
    assert vars(restored_core(Core(file=_Sink(lock)))) == {
        "handlers": {"default": "stderr"},
        "min_level": 30,
    }
    assert restored_core(Core()).handlers == {}
