"""Faults in concurrent operators (`operators/apart`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_FLIGHTS = "operators/apart/flights.py"
_WINDOW = "operators/apart/window.py"
_LANDING = "operators/apart/landing.py"
_OPERATOR = "operators/apart/apart_operator.py"
_MAP_ASYNC = "operators/apart/map_async.py"

_WINDOWS = ("tests/unit/operators/apart/test_windows.py",)
_LANDINGS = ("tests/unit/operators/apart/test_landings.py",)
_CALLS = ("tests/unit/operators/apart/test_map_async.py",)

MUTANTS: tuple[Mutant, ...] = (
    # --- records in flight ---
    mutant(
        "a record is done when the first of its calls has ended",
        _FLIGHTS,
        "            left = counts[offset] - 1\n",
        "            left = 0\n",
        tests=_WINDOWS,
    ),
    mutant(
        "a record that was fanned out is in flight once",
        _FLIGHTS,
        "                counts = held[place] = {}\n"
        "            counts[offset] = counts.get(offset, 0) + 1\n",
        "                counts = held[place] = {}\n            counts[offset] = 1\n",
        tests=_WINDOWS,
    ),
    mutant(
        "records of a punctuation are not in flight",
        _FLIGHTS,
        "        return bool(self.unplaced or any(self._held.values()))\n",
        "        return any(self._held.values())\n",
        tests=_WINDOWS,
    ),
    mutant(
        "offsets of records whose calls are in flight are committed",
        _FLIGHTS,
        "if place is not None and offset not in held.get(place, ()):",
        "if place is not None:",
        tests=_CALLS,
    ),
    mutant(
        "finished records are subtracted as batches",
        _OPERATOR,
        "        self._in_flight -= sum(map(len, done))\n",
        "        self._in_flight -= len(done)\n",
        tests=_CALLS,
    ),
    # --- the order of results ---
    mutant(
        "a result overtakes the records in front of it",
        _WINDOW,
        "            while line and line[0].done:\n",
        "            while line:\n",
        tests=_WINDOWS,
    ),
    mutant(
        "partitions wait for each other",
        _WINDOW,
        "    return batch.origin.place(batch.rows[call.index])\n",
        "    return None\n",
        tests=_WINDOWS,
    ),
    mutant(
        "under exactly-once results go on as they end",
        _MAP_ASYNC,
        "equipment.in_offset_order or self._ordering is Ordering.PARTITION",
        "self._ordering is Ordering.PARTITION",
        tests=_CALLS,
    ),
    mutant(
        "ordering by partition is ignored",
        _MAP_ASYNC,
        "equipment.in_offset_order or self._ordering is Ordering.PARTITION",
        "equipment.in_offset_order",
        tests=_CALLS,
    ),
    mutant(
        "ordering by key is ignored",
        _MAP_ASYNC,
        "        if self._ordering is Ordering.KEY:\n",
        "        if False:\n",
        tests=_CALLS,
    ),
    # --- results that go on ---
    mutant(
        "results are released twice",
        _MAP_ASYNC,
        "            for _ in range(len(batch)):\n                free.popleft()\n",
        "",
        tests=_CALLS,
    ),
    mutant(
        "a call that failed stays in flight",
        _MAP_ASYNC,
        "        done.append(call.batch.take([call.index]))\n",
        "",
        tests=_CALLS,
    ),
    mutant(
        "a commit waits for calls that have not begun",
        _MAP_ASYNC,
        "        most = self._concurrency if self.equipment.lands else self._most\n",
        "        most = self._most\n",
        tests=_CALLS,
    ),
    # --- the ends of calls ---
    mutant(
        "an end that was heard is heard again",
        _LANDING,
        "        self._told.clear()\n",
        "",
        tests=_LANDINGS,
    ),
    mutant(
        "the end of a call does not wake the loop",
        _LANDING,
        "            self._wake()\n",
        "",
        tests=_LANDINGS,
    ),
    mutant(
        "ended calls are taken twice",
        _LANDING,
        "        return [calls.popleft() for _ in range(len(calls))]\n",
        "        return list(calls)\n",
        tests=_LANDINGS,
    ),
    # --- halting ---
    mutant(
        "a halted operator begins its waiting calls",
        _OPERATOR,
        "        self._is_halted = True\n        self._units.halt()\n",
        "        self._is_halted = True\n",
        tests=_CALLS,
    ),
    mutant(
        "a halted operator does not wait for its running calls",
        _OPERATOR,
        "        return not self._is_halted or self._units.are_running or self.has_landed\n",
        "        return not self._is_halted or self.has_landed\n",
        tests=_CALLS,
    ),
)
