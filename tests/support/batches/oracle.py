"""The oracle: runs a program one record at a time, depth-first, as Kafka Streams does.

It is deliberately simple and shares only the program's functions with the engine.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

from millstream.record import Headers
from support.batches.programs import (
    FLAT_PAIR_MAPPERS,
    FLAT_VALUE_MAPPERS,
    KEY_SELECTORS,
    PAIR_MAPPERS,
    PREDICATES,
    REDUCERS,
    VALUE_MAPPERS,
    Event,
    Op,
    Program,
    collect_in_place,
)

#: Key, value, timestamp, headers.
OutRecord = tuple[Any, Any, int, Headers]
#: Key, value, timestamp.
LoggedChange = tuple[Any, Any, int]


class Oracle:
    """Runs a program record by record."""

    def __init__(self, program: Program) -> None:
        self.outputs: dict[str, list[OutRecord]] = defaultdict(list)
        self.changelogs: dict[int, list[LoggedChange]] = defaultdict(list)
        self.stores: dict[int, dict[str, tuple[Any, int]]] = defaultdict(dict)
        self._program = program
        self._headers: Headers = ()
        self._children: dict[int, list[int]] = defaultdict(list)
        for index, op in enumerate(program):
            if op.name != "otherwise":
                # A stream merged with itself contains each record once, as in Kafka Streams.
                for parent in dict.fromkeys(op.parents):
                    self._children[parent].append(index)

    def feed(self, event: Event) -> None:
        """Process one input record and everything that it causes."""
        # Derived records inherit its headers; no operation changes them.
        self._headers = event.headers
        for index, op in enumerate(self._program):
            if op.name == "stream" and op.text == event.topic:
                self._forward(index, event.key, event.value, event.timestamp)

    def _forward(self, index: int, key: Any, value: Any, timestamp: int) -> None:
        for child in self._children[index]:
            self._process(child, self._program[child], key, value, timestamp)

    def _process(self, index: int, op: Op, key: Any, value: Any, timestamp: int) -> None:
        match op.name:
            case "filter":
                if PREDICATES[op.function](key, value):
                    self._forward(index, key, value, timestamp)
            case "map_values":
                self._forward(index, key, VALUE_MAPPERS[op.function](value), timestamp)
            case "flat_map_values":
                for each in FLAT_VALUE_MAPPERS[op.function](value):
                    self._forward(index, key, each, timestamp)
            case "map":
                self._forward(index, *PAIR_MAPPERS[op.function](key, value), timestamp)
            case "select_key":
                self._forward(index, KEY_SELECTORS[op.function](key, value), value, timestamp)
            case "flat_map":
                for new_key, each in FLAT_PAIR_MAPPERS[op.function](key, value):
                    self._forward(index, new_key, each, timestamp)
            case "branch":
                chosen = index if PREDICATES[op.function](key, value) else index + 1
                self._forward(chosen, key, value, timestamp)
            case "count" | "reduce" | "aggregate":
                self._aggregate(index, op, key, value, timestamp)
            case "to":
                record = (key, copy.deepcopy(value), timestamp, self._headers)
                self.outputs[op.text].append(record)
            case _:
                self._forward(index, key, value, timestamp)

    def _aggregate(self, index: int, op: Op, key: Any, value: Any, timestamp: int) -> None:
        if key is None or value is None:
            return
        store = self.stores[index]
        old, time = store.get(key, (None, timestamp))
        new = _next(op, key, copy.deepcopy(old), value)
        time = max(time, timestamp)
        if new is None:
            store.pop(key, None)
        else:
            store[key] = (copy.deepcopy(new), time)
        # As in Kafka Streams, a deletion is logged with the timestamp of the deleting record.
        logged = timestamp if new is None else time
        self.changelogs[index].append((key, copy.deepcopy(new), logged))
        self._forward(index, key, None if new is None else _text(new), time)


def _next(op: Op, key: Any, old: Any, value: Any) -> Any:
    if op.name == "count":
        return (old or 0) + 1
    if op.name == "reduce":
        return value if old is None else REDUCERS[op.function](old, value)
    return collect_in_place(key, value, [] if old is None else old)


def _text(value: Any) -> str:
    """The conversion of aggregates before they are forwarded."""
    return value if isinstance(value, str) else str(value)
