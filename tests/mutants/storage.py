"""Faults in storages and their overlays (`state/storage`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_OVERLAY = "state/storage/overlay.py"
_ROCKSDB = "state/storage/rocksdb.py"
_BUDGET = "state/storage/overlay.py"
_CHECK = "state/storage/write_check.py"
_CHECKPOINT = "state/directories/checkpoint.py"

_LAYERS = ("tests/unit/state/storage/test_bytes_layers.py",)
_DATABASE = ("tests/unit/state/storage/test_rocksdb_storage.py",)
_STORES = ("tests/unit/state/test_task_stores.py",)

MUTANTS: tuple[Mutant, ...] = (
    # --- uncommitted writes ---
    mutant(
        "a scan returns keys in an order from before a deletion",
        _OVERLAY,
        "            del writes[key]\n        self._order.clear()\n"
        "        self._deleted_ranges.append",
        "            del writes[key]\n        self._deleted_ranges.append",
        tests=_LAYERS,
    ),
    mutant(
        "writes of a failed commit are not merged in order with later ones",
        _OVERLAY,
        "        frozen.order.clear()\n",
        "",
        tests=_LAYERS,
    ),
    mutant(
        "deleted ranges stay on disk",
        _OVERLAY,
        "        self._deleted_ranges.append((start, end))\n",
        "",
        tests=_LAYERS,
    ),
    mutant(
        "reads only return committed writes",
        _OVERLAY,
        "        return self._read(key) if value is _NOT_WRITTEN else value\n",
        "        return self._read(key)\n",
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
        "writes wait forever for memory",
        _BUDGET,
        "        elif self._total > self._max_bytes and not self._is_exceeded:\n",
        "        elif False:\n",
        tests=_STORES,
    ),
    mutant(
        "repeated writes of one key fill the budget",
        _BUDGET,
        "                self._bytes[writes] = writes.count_uncommitted()\n",
        "                self._bytes[writes] += 0\n",
        tests=_LAYERS,
    ),
    mutant(
        "a commit does not reset the need for one",
        _BUDGET,
        "            self._is_exceeded = False\n        elif",
        "            pass\n        elif",
        tests=_STORES,
    ),
    mutant(
        "the check of writes accepts undelivered results",
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
        "the position of a database is one record too high",
        _ROCKSDB,
        "return None if data is None else _OFFSET.unpack(data)[0]",
        "return None if data is None else _OFFSET.unpack(data)[0] + 1",
        tests=_DATABASE,
    ),
    mutant(
        "user code can hide a disk failure",
        _ROCKSDB,
        "        self.on_failure(failure)\n",
        "",
        tests=(*_DATABASE, "tests/unit/runtime/task/test_engine_failures.py"),
    ),
    mutant(
        "a database that cannot be flushed is not closed",
        _ROCKSDB,
        "            failure = error\n        # Drop all references",
        "            return error\n        # Drop all references",
        tests=("tests/unit/runtime/task_management/test_untrusted_state.py", *_DATABASE),
    ),
    mutant(
        "a checkpoint that lacks entries is trusted",
        _CHECKPOINT,
        "        if len(entries) != expected:\n",
        "        if False:\n",
        tests=("tests/unit/state/directories/test_checkpoint_file.py",),
    ),
)
