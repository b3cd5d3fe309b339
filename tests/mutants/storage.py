"""Faults in storages and in the writes above them (`state/storage`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_OVERLAY = "state/storage/overlay.py"
_ROCKSDB = "state/storage/rocksdb.py"
_BUDGET = "state/storage/uncommitted_budget.py"
_CHECK = "state/storage/write_check.py"
_CHECKPOINT = "state/directories/checkpoint.py"

_LAYERS = ("tests/unit/state/storage/test_bytes_layers.py",)
_DATABASE = ("tests/unit/state/storage/test_rocksdb_storage.py",)
_STORES = ("tests/unit/state/test_task_stores.py",)

MUTANTS: tuple[Mutant, ...] = (
    # --- uncommitted writes ---
    mutant(
        "a scan finds keys in the order of before they were dropped",
        _OVERLAY,
        "            del writes[key]\n        self._order.clear()\n        self._dropped.append",
        "            del writes[key]\n        self._dropped.append",
        tests=_LAYERS,
    ),
    mutant(
        "writes of a failed commit keep the order of before later ones joined them",
        _OVERLAY,
        "        begun.order.clear()\n",
        "",
        tests=_LAYERS,
    ),
    mutant(
        "ranges that are dropped stay on disk",
        _OVERLAY,
        "        self._dropped.append((start, end))\n",
        "",
        tests=_LAYERS,
    ),
    mutant(
        "a read finds only what is committed",
        _OVERLAY,
        "        return self._read(key) if value is _UNWRITTEN else value\n\n"
        "    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:\n"
        '        """The value of each key, in their order."""\n'
        "        return _found_above(self._writes, self._below, keys)\n\n"
        "    def put(",
        "        return self._read(key)\n\n"
        "    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:\n"
        '        """The value of each key, in their order."""\n'
        "        return _found_above(self._writes, self._below, keys)\n\n"
        "    def put(",
        tests=_LAYERS,
    ),
    mutant(
        "a restoration above uncommitted writes is accepted",
        _OVERLAY,
        "        if self._writes:\n            raise IllegalStateError(",
        "        if False:\n            raise IllegalStateError(",
        tests=_STORES,
    ),
    mutant(
        "writes wait for ever for the bytes that they take",
        _BUDGET,
        "        elif self._total > self._max_bytes and not self._is_exceeded:\n",
        "        elif False:\n",
        tests=_STORES,
    ),
    mutant(
        "a key that is written again and again fills the budget",
        _BUDGET,
        "                self._bytes[writes] = writes.count_uncommitted()\n",
        "                self._bytes[writes] += 0\n",
        tests=_LAYERS,
    ),
    mutant(
        "a commit does not end the need for one",
        _BUDGET,
        "            self._is_exceeded = False\n        elif",
        "            pass\n        elif",
        tests=_STORES,
    ),
    mutant(
        "the check of writes accepts what is not delivered",
        _CHECK,
        "        if last_unit > self._delivered:\n",
        "        if False:\n",
        tests=_STORES,
    ),
    # --- the database ---
    mutant(
        "deletions are not written to the database",
        _ROCKSDB,
        "                    delete(key)\n",
        "                    pass\n",
        tests=_DATABASE,
    ),
    mutant(
        "ranges are not deleted from the database",
        _ROCKSDB,
        "            batch.delete_range(start, end)\n",
        "            pass\n",
        tests=(*_DATABASE, *_LAYERS),
    ),
    mutant(
        "a database claims one changelog record more than it has",
        _ROCKSDB,
        "return None if data is None else _OFFSET.unpack(data)[0]",
        "return None if data is None else _OFFSET.unpack(data)[0] + 1",
        tests=_DATABASE,
    ),
    mutant(
        "a failing disk is not noted, so user code can hide it",
        _ROCKSDB,
        "        self.on_failure(failure)\n",
        "",
        tests=(*_DATABASE, "tests/unit/runtime/task/test_engine_failures.py"),
    ),
    mutant(
        "a database that cannot be flushed is not closed",
        _ROCKSDB,
        "            failure = error\n        # Every reference counts",
        "            return error\n        # Every reference counts",
        tests=("tests/unit/runtime/ownership/test_untrusted_state.py", *_DATABASE),
    ),
    mutant(
        "a checkpoint that lacks entries is trusted",
        _CHECKPOINT,
        "        if len(entries) != expected:\n",
        "        if False:\n",
        tests=("tests/unit/state/directories/test_checkpoint_file.py",),
    ),
)
