"""Faults in changelogs (`state/changelogs`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_CHANGELOG = "state/changelogs/store_changelog.py"
_LAYERS = "state/changelogs/logged_stores.py"
_RESTORE = "state/changelogs/restore.py"

_FAILURES = ("tests/unit/runtime/task/test_engine_failures.py",)
_LOGGED = ("tests/unit/state/test_store_changelog.py", "tests/unit/state/test_key_value_store.py")
_STORES = ("tests/unit/state/test_task_stores.py",)
_MODELS = ("tests/properties/stores/test_window_state_model.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "user code can hide a failed write to a changelog",
        _CHANGELOG,
        "            self._failures.record(error)\n",
        "",
        tests=_FAILURES,
    ),
    mutant(
        "the engine's failures do not fail the task",
        "state/engine_failures.py",
        "        if failure is not None:\n            raise failure\n",
        "        pass\n",
        tests=_FAILURES,
    ),
    mutant(
        "the engine's failures are passed to the handler",
        "runtime/task/node_context.py",
        "        self._failures.raise_first()\n",
        "",
        tests=_FAILURES,
    ),
    mutant(
        "earlier failures fail a reopened task",
        "state/task_stores.py",
        "            self.failures.reset()\n",
        "",
        tests=_FAILURES,
    ),
    mutant(
        "a failed query fails the task",
        "runtime/queries/store_queries.py",
        "                each.reset()\n",
        "                pass\n",
        tests=_FAILURES,
    ),
    mutant(
        "a query clears failures that init() or a batch has hidden",
        "runtime/queries/store_queries.py",
        "if each.first is None]",
        "if True]",
        tests=_FAILURES,
    ),
    mutant(
        "failures that init() has hidden are ignored",
        "runtime/task/stream_task.py",
        "        # Processors may have written to stores in init().\n"
        "        self.stores.after_work()\n",
        "",
        tests=_FAILURES,
    ),
    mutant(
        "stores with logged uncommitted changes may stay open",
        _CHANGELOG,
        "        self.has_written = True\n",
        "        self.has_written = False\n",
        tests=(*_STORES, "tests/unit/runtime/task_management/test_standby_tasks.py"),
    ),
    mutant(
        "timestamped stores log the timestamp before a value",
        _CHANGELOG,
        "        send(store_name, (key,), (value_of(stored),), (timestamp,))\n",
        "        send(store_name, (key,), (stored,), (timestamp,))\n",
        tests=_LOGGED,
    ),
    mutant(
        "a put is not logged",
        _LAYERS,
        "        self._write(key, value, timestamp)\n        self._log(key, value, timestamp)\n",
        "        self._write(key, value, timestamp)\n",
        tests=(*_LOGGED, *_STORES),
    ),
    mutant(
        "batches of puts are logged in reverse",
        _LAYERS,
        "        self._write_many(keys, values, timestamps)\n"
        "        self._log_many(keys, values, timestamps)\n",
        "        self._write_many(keys, values, timestamps)\n"
        "        self._log_many(keys[::-1], values[::-1], timestamps[::-1])\n",
        tests=(*_LOGGED, *_STORES, "tests/properties/stores/test_state_model.py"),
    ),
    mutant(
        "removed sessions reappear after a restoration",
        _LAYERS,
        "        self._log(key, None, timestamp)\n",
        "",
        tests=("tests/unit/state/windows/test_window_stores.py", *_MODELS),
    ),
    mutant(
        "evicted entries reappear after a restoration",
        _LAYERS,
        "            self._changelog.log(key, None, self._context.timestamp)\n",
        "            pass\n",
        tests=(*_LOGGED, "tests/properties/stores/test_state_model.py"),
    ),
    mutant(
        "a restoration skips a record",
        _RESTORE,
        "return None if self.reached is None else self.reached + 1",
        "return None if self.reached is None else self.reached + 2",
        tests=(*_STORES, "tests/unit/runtime/task_management/test_restoration.py"),
    ),
    mutant(
        "the position of a restored store is one record too high",
        _RESTORE,
        "self._apply(keys, values, timestamps, (self.partition, offsets[-1]))",
        "self._apply(keys, values, timestamps, (self.partition, offsets[-1] + 1))",
        tests=_STORES,
    ),
    mutant(
        "deletions are not restored",
        _RESTORE,
        "        items.pop(None, None)\n",
        "        items = {k: v for k, v in items.items() if k is not None and v is not None}\n",
        tests=(*_STORES, "tests/properties/stores/test_state_model.py"),
    ),
    mutant(
        "an older record of a key replaces a later one of its batch",
        _RESTORE,
        "dict(zip(keys, value_format.join_many(values, timestamps), strict=True))",
        "dict(list(zip(keys, value_format.join_many(values, timestamps), strict=True))[::-1])",
        tests=(*_STORES, "tests/properties/stores/test_state_model.py"),
    ),
)
