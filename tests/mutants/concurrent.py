"""Faults in concurrent operators (`operators/concurrent`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_IN_FLIGHT = "operators/concurrent/in_flight.py"
_RESULT_ORDER = "operators/concurrent/map_async.py"
_COMPLETIONS = "operators/concurrent/concurrent_calls.py"
_OPERATOR = "operators/concurrent/concurrent_operator.py"
_MAP_ASYNC = "operators/concurrent/map_async.py"

_WINDOW_TESTS = ("tests/unit/operators/concurrent/test_result_order.py",)
_COMPLETION_TESTS = ("tests/unit/operators/concurrent/test_completions.py",)
_MAP_ASYNC_TESTS = ("tests/unit/operators/concurrent/test_map_async.py",)

MUTANTS: tuple[Mutant, ...] = (
    # --- records in flight ---
    mutant(
        "a record is completed with the first of its calls",
        _IN_FLIGHT,
        "            left = counts[offset] - 1\n",
        "            left = 0\n",
        tests=_WINDOW_TESTS,
    ),
    mutant(
        "a record with several calls is in flight only once",
        _IN_FLIGHT,
        "                counts = pending[partition] = {}\n"
        "            counts[offset] = counts.get(offset, 0) + 1\n",
        "                counts = pending[partition] = {}\n            counts[offset] = 1\n",
        tests=_WINDOW_TESTS,
    ),
    mutant(
        "records of a punctuation are not in flight",
        _IN_FLIGHT,
        "        return bool(self.from_punctuations or any(self._pending.values()))\n",
        "        return any(self._pending.values())\n",
        tests=_WINDOW_TESTS,
    ),
    mutant(
        "offsets of records with calls in flight are committed",
        _IN_FLIGHT,
        "if partition is not None and offset not in pending.get(partition, ()):",
        "if partition is not None:",
        tests=_MAP_ASYNC_TESTS,
    ),
    mutant(
        "completed records are counted in batches",
        _OPERATOR,
        "        self._in_flight -= sum(map(len, done))\n",
        "        self._in_flight -= len(done)\n",
        tests=_MAP_ASYNC_TESTS,
    ),
    # --- the order of results ---
    mutant(
        "a result overtakes earlier records",
        _RESULT_ORDER,
        "            while queue and queue[0].done:\n",
        "            while queue:\n",
        tests=_WINDOW_TESTS,
    ),
    mutant(
        "partitions wait for each other",
        _RESULT_ORDER,
        "    return batch.origin.place(batch.rows[call.index])\n",
        "    return None\n",
        tests=_WINDOW_TESTS,
    ),
    mutant(
        "under exactly-once, results are forwarded in completion order",
        _MAP_ASYNC,
        "runner_context.in_offset_order or self._ordering is Ordering.PARTITION",
        "self._ordering is Ordering.PARTITION",
        tests=_MAP_ASYNC_TESTS,
    ),
    mutant(
        "ordering by partition is ignored",
        _MAP_ASYNC,
        "runner_context.in_offset_order or self._ordering is Ordering.PARTITION",
        "runner_context.in_offset_order",
        tests=_MAP_ASYNC_TESTS,
    ),
    mutant(
        "ordering by key is ignored",
        _MAP_ASYNC,
        "        if self._ordering is Ordering.KEY:\n",
        "        if False:\n",
        tests=_MAP_ASYNC_TESTS,
    ),
    # --- releasing results ---
    mutant(
        "results are released twice",
        _MAP_ASYNC,
        "            for _ in range(len(batch)):\n                ready.popleft()\n",
        "",
        tests=_MAP_ASYNC_TESTS,
    ),
    mutant(
        "a call that failed stays in flight",
        _MAP_ASYNC,
        "        done.append(call.batch.take([call.index]))\n",
        "",
        tests=_MAP_ASYNC_TESTS,
    ),
    mutant(
        "a commit waits for calls that have not started",
        _MAP_ASYNC,
        "            self._concurrency if self.runner_context.drains_before_commit else "
        "self._max_in_flight\n",
        "            self._max_in_flight\n",
        tests=_MAP_ASYNC_TESTS,
    ),
    # --- completions ---
    mutant(
        "a completion is reported twice",
        _COMPLETIONS,
        "        self._waker.clear()\n",
        "        pass\n",
        tests=_COMPLETION_TESTS,
    ),
    mutant(
        "a completion does not wake the loop",
        _COMPLETIONS,
        "            self._wake()\n",
        "",
        tests=_COMPLETION_TESTS,
    ),
    mutant(
        "completed calls are taken twice",
        _COMPLETIONS,
        "        return [calls.popleft() for _ in range(len(calls))]\n",
        "        return list(calls)\n",
        tests=_COMPLETION_TESTS,
    ),
    # --- halting ---
    mutant(
        "a halted operator starts its queued calls",
        _OPERATOR,
        "        self._is_halted = True\n        self._runner.halt()\n",
        "        self._is_halted = True\n",
        tests=_MAP_ASYNC_TESTS,
    ),
    mutant(
        "a halted operator does not wait for its running calls",
        _OPERATOR,
        "        return not self._is_halted or self._runner.is_running or self.has_completions\n",
        "        return not self._is_halted or self.has_completions\n",
        tests=_MAP_ASYNC_TESTS,
    ),
)
