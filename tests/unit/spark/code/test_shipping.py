"""Code shipped to the workers, and messages about unpicklable objects."""

from __future__ import annotations

import functools
import logging
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from millstream.errors import NotPicklableError
from millstream.spark.code import shipping


class Node:
    """Imitates a node of a topology: an object of the package with a name."""

    def __init__(self, name: str, mapper: Any) -> None:
        self.name = name
        self.mapper = mapper


Node.__module__ = "millstream.topology.logical.logical_graph"


def write_modules(folder: Path, **sources: str) -> None:
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)


def load_in_new_process(data: bytes, folder: Path, expression: str) -> str:
    """Evaluate `expression` over the unpickled `it`, in a process that cannot import user
    modules."""
    (folder / "data.pickle").write_bytes(data)
    code = (
        "import pickle, sys; it = pickle.load(open(sys.argv[1], 'rb'));"
        f"print({expression}, 'helpers' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", code, str(folder / "data.pickle")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.fixture
def import_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Write modules beside a script, and import them as the script would."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def load(name: str, **sources: str) -> ModuleType:
        write_modules(tmp_path, **sources)
        __import__(name)
        return sys.modules[name]

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_lambdas_and_closures_are_shipped() -> None:
    """Goal: users' mappers arrive and work."""
    factor = 3
    ship = shipping.ship
    assert pickle.loads(ship(lambda value: value * factor, "f"))(2) == 6


def test_user_modules_are_shipped_as_code_and_installed_ones_by_name(
    import_from: Any, tmp_path: Path
) -> None:
    """Goal: `import helpers` works in a worker. Method: load in a process that cannot import
    helpers.

    `helpers` uses `deeper`, as a module and by one of its functions: both must be shipped.
    """
    helpers = import_from(
        "helpers",
        helpers="import orjson\nimport deeper\nfrom deeper import twice\n"
        "def work(value):\n    return orjson.dumps(twice(value) + deeper.ONE).decode()\n",
        deeper="ONE = 1\ndef twice(value):\n    return 2 * value\n",
    )
    assert {module.__name__ for module in shipping.user_modules()} >= {"helpers", "deeper"}
    assert "orjson" not in {module.__name__ for module in shipping.user_modules()}
    data = shipping.ship(lambda value: helpers.work(value), "f")
    assert load_in_new_process(data, tmp_path, "it(20)") == "41 False"


def test_modules_that_refer_to_each_other_are_shipped(import_from: Any, tmp_path: Path) -> None:
    """Goal: a cycle of imports does not cause a recursion, as it does in plain cloudpickle."""
    helpers = import_from(
        "helpers",
        helpers="import other\ndef even(n):\n    return n == 0 or other.odd(n - 1)\n",
        other="import helpers\ndef odd(n):\n    return n != 0 and helpers.even(n - 1)\n",
    )
    data = shipping.ship(lambda: helpers.even(10), "f")
    assert load_in_new_process(data, tmp_path, "it()") == "True False"


def test_classes_of_user_modules_keep_their_identity_in_results(import_from: Any) -> None:
    """Goal: `except helpers.Refused` in the driver catches a worker's exception."""
    helpers = import_from("helpers", helpers="class Refused(Exception):\n    pass\n")
    new_process = pickle.loads(shipping.ship(helpers.Refused("no"), "e"))
    assert isinstance(new_process, helpers.Refused)


def test_shipping_does_not_change_the_registry_of_cloudpickle(import_from: Any) -> None:
    """Goal: other pickling in the process is unaffected, as are the user's registrations."""
    helpers = import_from("helpers", helpers="def f():\n    return 1\n", other="X = 1\n")
    __import__("other")
    cloudpickle.register_pickle_by_value(sys.modules["other"])
    try:
        shipping.ship(helpers.f, "f")
        with pytest.raises(NotPicklableError):
            shipping.ship(threading.Lock(), "lock")
        assert cloudpickle.list_registry_pickle_by_value() == {"other"}
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules["other"])


def test_an_unpicklable_closure_variable_is_named_with_its_node() -> None:
    """Goal: the message names the node, the variable, its type, and the remedy."""
    lock = threading.Lock()

    def mapper(value: int) -> int:
        with lock:
            return value

    topology = {"nodes": [Node("KSTREAM-SOURCE-0000000000", None), Node("MAP-1", mapper)]}
    with pytest.raises(NotPicklableError) as caught:
        shipping.ship(functools.partial(print, topology), "the topology")
    error = caught.value
    assert error.path == "node 'MAP-1' mapper → closure variable 'lock'"
    assert error.type_name == "_thread.lock"
    assert error.node == "MAP-1"
    assert "init()" in str(error)
    assert error.path in str(error)


class Supplier:
    def __init__(self) -> None:
        self.options = {"client": threading.Lock()}

    def get(self) -> None:
        return None


class Slotted:
    """Its lock comes after its slots, which cannot be pickled either but do not have to be."""

    __slots__ = ("name",)


Slotted.lock = threading.Lock()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: Supplier().get, "it → object of method 'get' → options → item 'client'"),
        (lambda: functools.partial(print, sep=threading.Lock()), "it → argument 'sep'"),
        (lambda: [1, (2, threading.Lock())], "it → item 1 → item 1"),
        (lambda: uses_global, "it → global variable 'SHARED'"),
        (lambda: Slotted, "it → class attribute 'lock'"),
    ],
)
def test_the_path_to_unpicklable_objects(make: Any, path: str) -> None:
    """Goal: the message explains every common way to capture an object accidentally."""
    with pytest.raises(NotPicklableError) as caught:
        shipping.ship(make(), "it")
    assert caught.value.path == path


SHARED = threading.Lock()


def uses_global() -> bool:
    return SHARED.locked()


def test_an_object_that_rejects_pickling_is_named() -> None:
    """Goal: an object whose pickling raises an error is named, with its own message as the
    reason."""

    class Client:
        def __reduce__(self) -> Any:
            raise TypeError("a client holds a connection")

    with pytest.raises(NotPicklableError, match="a client holds a connection") as caught:
        shipping.ship({"client": Client()}, "it")
    assert caught.value.path == "it → item 'client'"


def test_a_large_plan_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a table captured by a closure is noticed."""
    data = bytes(11 * 1024 * 1024)
    with caplog.at_level(logging.WARNING):
        shipping.ship(lambda: data, "the topology")
    assert "the topology" in caplog.text
    assert "MB" in caplog.text


def test_errors_can_be_pickled() -> None:
    """Goal: the error itself can be pickled, including its fields."""
    with pytest.raises(NotPicklableError) as caught:
        shipping.ship([threading.Lock()], "it")
    caught.value.__cause__ = None
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.path, again.type_name) == ("it → item 0", "_thread.lock")
