"""Random modifications of all kinds of scenarios, including the recorded ones.

Settings, stores, windows, buffers and names are replaced by other valid ones; operators are
inserted; times are stretched to days, moved to the present, or made negative; keys become empty
or longer than others; more values are missing.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from conformance.generators.kinds import Kind, ids_of, kinds_of, parents_of
from conformance.generators.rare import rare_scenario
from conformance.generators.wild import wild_scenario
from conformance.generators.window_tables import window
from conformance.vendored.generate import GROUPS, curated, rand_scenario

Scenario = dict[str, Any]
Op = dict[str, Any]

#: The parameters of operations that are durations, in ms.
_TIMES = frozenset(
    [
        *("size", "grace", "gap", "advance", "start", "diff", "before", "after", "limit_ms"),
        *("history_ms", "grace_ms", "retention_ms", "window_ms", "segment_ms"),
    ]
)
_SCALES = (1_000, 7_919, 30_001, 3_600_000)
#: The latest time of events: sums of later times overflow in Java.
_LATEST = 1 << 53
#: No key equals another plus a zero byte: for such keys, Java's cached in-memory stores return
#: windows twice.
_KEYS = ("", "a", "aa", "a\x01", "\x01", "ä", "日", "z" * 40)
_BAD_NAMES = ("a b", "", "..", "x/y", "é", "ok-_.9")
_STORED = frozenset(
    [
        *("count", "reduce", "aggregate", "table", "to_table"),
        *("filter", "filter_not", "map_values", "transform_values"),
    ]
)


def twisted_scenario(seed: str, index: int) -> Scenario:
    """Create a scenario; the same for the same arguments."""
    rng = random.Random(f"twisted/{seed}/{index}")
    scenario = _any_scenario(rng, seed, index)
    for twist in rng.sample(_TWISTS, rng.randrange(1, 6)):
        twist(rng, scenario)
    return {**scenario, "name": f"twisted {seed}/{index}: {scenario['name']}", "group": "twisted"}


def _any_scenario(rng: random.Random, seed: str, index: int) -> Scenario:
    origin = rng.random()
    if origin < 0.3:
        generated = rng.choice(_CURATED)
    elif origin < 0.6:
        generated = rand_scenario(rng.choice(GROUPS), f"t{seed}", index)
    elif origin < 0.8:
        generated = wild_scenario(f"t{seed}", index)
    else:
        generated = rare_scenario(f"t{seed}", index)
    scenario: Scenario = copy.deepcopy(generated)
    return scenario


_CURATED: list[Scenario] = curated()


# --- settings ------------------------------------------------------------------------------------


def _setting(rng: random.Random, scenario: Scenario) -> None:
    settings: dict[str, tuple[Any, ...]] = {
        "cache_max_bytes": (0, 10_000_000, 10_000_000),
        "dsl_store": ("in_memory", "rocksdb"),
        "emit_interval_ms": (1, 10, 50),
        "explicit_naming": (True,),
        "max_task_idle_ms": (0, 5, -1),
        "optimize": ("all", "none"),
        "processing_guarantee": ("exactly_once_v2",),
        "processing_handler": ("continue",),
        "wall_clock_ms": (1, 77, 1_000_000),
    }
    name = rng.choice([*settings, "cache_max_bytes", "optimize", "dsl_store"])
    if name != "explicit_naming" or rng.random() < 0.3:
        scenario["config"] = {**scenario.get("config", {}), name: rng.choice(settings[name])}


# --- stores --------------------------------------------------------------------------------------


def _stores(rng: random.Random, scenario: Scenario) -> None:
    kinds = kinds_of(scenario["topology"])
    for number, op in enumerate(scenario["topology"]):
        used = "name" in (op.get("store") or {}) and _is_used(op["store"], scenario)
        if rng.random() < 0.4 and _has_store(op, kinds) and not used:
            _other_store(rng, op, kinds[op["id"]], f"tw{number}")


def _has_store(op: Op, kinds: dict[str, Kind]) -> bool:
    if op["op"] == "join":
        return kinds[op["id"]].category == "table"
    return op["op"] in _STORED and kinds[op["id"]].category == "table"


def _other_store(rng: random.Random, op: Op, kind: Kind, name: str) -> None:
    store = dict(op.get("store") or {})
    if rng.random() < 0.3:
        store.setdefault("name", name)
    choices: list[tuple[str, Any]] = [
        ("kind", rng.choice(("in_memory", "rocksdb"))),
        ("caching", rng.random() < 0.7),
        ("logging", rng.choice((True, False, {"cleanup.policy": "compact,delete"}))),
    ]
    if store.get("kind") not in ("versioned", "lru"):
        choices.append(("kind", rng.choice(("in_memory", "rocksdb"))))
    else:
        choices = choices[1:]
    if kind.window is not None and kind.window["type"] != "unlimited":
        choices.append(("retention_ms", rng.choice((50, 130, 1_000, 100_000))))
    store.update(rng.sample(choices, rng.randrange(1, 3)))
    if kind.window is None and kind.is_text and rng.random() < 0.2:
        store = {"name": store.get("name", name), "kind": "versioned"}
        store["history_ms"] = rng.choice((0, 10, 40, 1_000))
    if kind.window is not None and op["op"] not in ("count", "reduce", "aggregate"):
        # A named result is materialized, and Kafka Streams uses the default serde for its keys.
        store = {"kind": "in_memory", "caching": store.get("caching", True)}
    op["store"] = store


# --- windows, joins, buffers ---------------------------------------------------------------------


def _windows(rng: random.Random, scenario: Scenario) -> None:
    for op in scenario["topology"]:
        if op["op"] != "windowed_by" or rng.random() < 0.3:
            continue
        old = op["window"]["type"]
        if old == "session":
            op["window"] = window(rng, ("session",))
        elif old != "unlimited":
            kinds = ("hopping", "sliding") if old == "sliding" else ("tumbling", "hopping")
            op["window"] = window(rng, kinds)
        if rng.random() < 0.3 and not _is_cogrouped(op, scenario):
            op["emit"] = rng.choice(("on_window_close", "on_window_update"))


def _is_cogrouped(op: Op, scenario: Scenario) -> bool:
    return kinds_of(scenario["topology"])[parents_of(op)[0]].category == "cogrouped"


def _joins(rng: random.Random, scenario: Scenario) -> None:
    kinds = kinds_of(scenario["topology"])
    for op in scenario["topology"]:
        if op["op"] != "join" or rng.random() < 0.3:
            continue
        left, right = (kinds[parent] for parent in op["from"])
        both = (
            "table"
            if left.category == right.category == "table"
            else left.category + right.category
        )
        some = ("inner", "left")
        outer = both in ("table", "streamstream") and "foreign_key" not in op
        op["kind"] = rng.choice((*some, "outer") if outer else some)
        if left.is_text and right.value.n == "string":
            op["joiner"] = rng.choice(("plus", "null_if_same", "left", "right"))
            if both in ("streamstream", "streamtable", "streamglobal") and rng.random() < 0.3:
                op["joiner"] = "key_plus"
        if both == "streamstream":
            _join_windows(rng, op)
        elif both == "streamtable" and rng.random() < 0.1:
            op["grace_ms"] = rng.choice((0, 5, 30))


def _join_windows(rng: random.Random, op: Op) -> None:
    before, after = rng.choice((0, 3, 12, -2)), rng.choice((0, 3, 12, -2))
    if before + after >= 0:
        grace = rng.choice((0, 1, 6, 25, 1_000))
        op["windows"] = {"before": before, "after": after, "grace": grace}
    if rng.random() < 0.3:
        op["logging"] = False
    if rng.random() < 0.2:
        op["store_name"] = f"joined{op['id']}"


def _buffers(rng: random.Random, scenario: Scenario) -> None:
    for op in scenario["topology"]:
        if op["op"] != "suppress":
            continue
        buffer: dict[str, Any] = {}
        if rng.random() < 0.5:
            buffer["max_records"] = rng.choice((0, 1, 2, 5))
        if rng.random() < 0.4:
            buffer["max_bytes"] = rng.choice((0, 90, 160, 400))
        if rng.random() < 0.3:
            buffer["logging"] = False
        if op["type"] == "until_time_limit":
            op["limit_ms"] = rng.choice((0, 1, 12, 60, 1_000))
            if buffer and rng.random() < 0.4:
                buffer["full"] = rng.choice(("shut_down", "emit_early"))
        elif "max_records" in buffer or "max_bytes" in buffer:
            buffer["full"] = "shut_down"
        op["buffer"] = buffer


# --- operators in between ------------------------------------------------------------------------

_BETWEEN: dict[str, tuple[dict[str, Any], ...]] = {
    "stream": (
        {"op": "peek"},
        {"op": "repartition"},
        {"op": "process", "processor": "pass"},
        {"op": "process_values", "processor": "header:tw"},
        {"op": "process", "processor": "drop_headers"},
        {"op": "process", "processor": "shift_ts:2"},
        {"op": "process", "processor": "shift_ts:-3"},
        {"op": "filter", "predicate": "v|not_null"},
        {"op": "select_key", "key": "k"},
        {"op": "map_values", "value": "v"},
        {"op": "map"},
        {"op": "flat_map_values", "values": "v|dup:2"},
        {"op": "flat_map", "values": "v|dup:2"},
    ),
    "table": (
        {"op": "filter", "predicate": "v|not_null"},
        {"op": "filter_not", "predicate": "v|is_null"},
        {"op": "map_values", "value": "v"},
        {"op": "filter", "predicate": "v|not_null", "store": {"kind": "in_memory"}},
        {"op": "map_values", "value": "v", "store": {"kind": "rocksdb"}},
        {"op": "suppress", "type": "until_time_limit", "limit_ms": 4},
        {"op": "suppress", "type": "until_time_limit", "limit_ms": 0},
    ),
    "text": (
        {"op": "map_values", "value": "v|null_if_contains:b"},
        {"op": "map_values", "value": "v|append:~"},
        {"op": "filter", "predicate": "k|contains:a"},
    ),
}


def _insert_operator(rng: random.Random, scenario: Scenario) -> None:
    ops, kinds = scenario["topology"], kinds_of(scenario["topology"])
    places = [node for node, kind in kinds.items() if kind.category in ("stream", "table")]
    if not places or "'processor': 'route" in str(ops):
        return
    node = rng.choice(places)
    kind = kinds[node]
    choices = list(_BETWEEN[kind.category])
    if kind.is_text:
        choices += _BETWEEN["text"]
    if kind.window is not None and kind.category == "table":
        choices.append({"op": "suppress", "type": "until_window_closes"})
    added = {"id": f"tw{len(ops)}", "from": node, **copy.deepcopy(rng.choice(choices))}
    place = next(i for i, op in enumerate(ops) if node in ids_of(op)) + 1
    for op in ops[place:]:
        if node in parents_of(op) and rng.random() < 0.8:
            parents = [added["id"] if each == node else each for each in parents_of(op)]
            op["from"] = parents if isinstance(op["from"], list) else parents[0]
    ops.insert(place, added)


def _add_sink(rng: random.Random, scenario: Scenario) -> None:
    """Add a sink to a random node."""
    ops, kinds = scenario["topology"], kinds_of(scenario["topology"])
    places = [node for node, kind in kinds.items() if kind.category in ("stream", "table")]
    if not places:
        return
    node, number = rng.choice(places), len(ops)
    if kinds[node].category == "table":
        ops.append({"id": f"twl{number}", "op": "to_stream", "from": node})
        node = f"twl{number}"
    ops.append({"id": f"twt{number}", "op": "to", "from": node, "topic": f"look{number}"})


# --- names ---------------------------------------------------------------------------------------


def _names(rng: random.Random, scenario: Scenario) -> None:
    ops = [op for op in scenario["topology"] if "id" in op]
    if not ops or "'processor': 'route" in str(scenario["topology"]):
        return
    used = [op["name"] for op in ops if "name" in op]
    for number in range(rng.randrange(1, 4)):
        op = rng.choice(ops)
        how = rng.random()
        if op["op"] in ("windowed_by", "cogroup", "global_store"):
            continue
        if how < 0.88:
            op["name"] = f"named{number}"
        elif how < 0.94 and used:
            op["name"] = rng.choice(used)
        elif how < 0.97:
            op["name"] = rng.choice(_BAD_NAMES)
        else:
            op["name"] = f"KSTREAM-SOURCE-000000000{number}"


def _store_names(rng: random.Random, scenario: Scenario) -> None:
    stores = [op["store"] for op in scenario["topology"] if isinstance(op.get("store"), dict)]
    # Java does not check the names of suppliers.
    checked = [store for store in stores if store.get("kind") not in ("versioned", "lru")]
    named = [store for store in checked if "name" in store and not _is_used(store, scenario)]
    if named:
        others = [store["name"] for store in stores if "name" in store]
        rng.choice(named)["name"] = rng.choice([*others, *("o", "p", "q"), rng.choice(_BAD_NAMES)])


def _is_used(store: dict[str, Any], scenario: Scenario) -> bool:
    """Whether a processor uses the store."""
    quoted = json.dumps([[op.get("stores"), op.get("processor")] for op in scenario["topology"]])
    return store["name"] in quoted


def _topics(rng: random.Random, scenario: Scenario) -> None:
    """Let two operators read or write the same topic."""
    ops, kinds = scenario["topology"], kinds_of(scenario["topology"])
    reading = ("stream", "table", "global_table")
    sources = [(op, kinds[op["id"]]) for op in ops if op["op"] in reading and "topic" in op]
    sinks = [(op, kinds[parents_of(op)[0]]) for op in ops if op["op"] == "to" and "topic" in op]
    read_again = {op["topic"] for op, _ in sources} & {op["topic"] for op, _ in sinks}
    places = rng.choice((sources, sources, sinks))
    # Topics that are written and read again could form an endless cycle.
    if len(places) > 1 and not read_again:
        (one, kind), (other, same) = rng.sample(places, 2)
        if kind.key == same.key and kind.value == same.value:
            for event in scenario["events"]:
                if event.get("topic") == one["topic"]:
                    event["topic"] = other["topic"]
            one["topic"] = other["topic"]


# --- events --------------------------------------------------------------------------------------


def _stretch_times(rng: random.Random, scenario: Scenario) -> None:
    """Multiply all durations by a factor, since segments of stores are minutes long."""
    factor = rng.choice(_SCALES)
    if max((event.get("ts", 0) for event in scenario["events"]), default=0) * factor > _LATEST:
        return
    for op in scenario["topology"]:
        _stretch(op, factor)
        processor = str(op.get("processor", ""))
        if processor.split(":")[0] in ("shift_ts", "punct", "buffer", "dedup"):
            head, *rest = processor.split(":")
            place = 1 if head in ("punct", "buffer") else 0
            rest[place] = str(int(rest[place]) * factor)
            op["processor"] = ":".join([head, *rest])
    commands = any("_cmd" in str(op.get("processor")) for op in scenario["topology"])
    for event in scenario["events"]:
        for key in ("ts", "advance_wall_clock_ms"):
            if key in event:
                event[key] *= factor
        if commands and isinstance(event.get("value"), str):
            words = event["value"].split(" ")
            event["value"] = " ".join(str(int(w) * factor) if w.isdigit() else w for w in words)


def _stretch(part: Any, factor: int) -> None:
    if isinstance(part, dict):
        for key, value in part.items():
            if key in _TIMES and isinstance(value, int):
                part[key] = value * factor
            else:
                _stretch(value, factor)


def _shift_times(rng: random.Random, scenario: Scenario) -> None:
    if any("_cmd" in str(op.get("processor")) for op in scenario["topology"]):
        return
    offset = rng.choice((1, 59_999, 1_700_000_000_000))
    for event in scenario["events"]:
        if "ts" in event:
            event["ts"] += offset


def _repeat_events(rng: random.Random, scenario: Scenario) -> None:
    """Repeat the events, later and possibly in another order."""
    again = copy.deepcopy(scenario["events"])
    if len(again) > 60:
        return
    if rng.random() < 0.5:
        rng.shuffle(again)
    latest = max((event["ts"] for event in again if "ts" in event), default=0)
    offset = rng.choice((0, latest // 2, latest, latest + 100_000))
    for event in again:
        if "ts" in event:
            event["ts"] += offset
    scenario["events"] += again


def _other_events(rng: random.Random, scenario: Scenario) -> None:
    nulls, headers = rng.choice((0, 0.2)), rng.choice((0, 0.4))
    commands = any("_cmd" in str(op.get("processor")) for op in scenario["topology"])
    keys = rng.sample(_KEYS, 3)
    renamed = dict(zip("abc", keys, strict=True)) if rng.random() < 0.6 else {}
    for event in scenario["events"]:
        if "topic" not in event:
            continue
        if isinstance(event["key"], str):
            event["key"] = renamed.get(event["key"], event["key"])
        if not commands and rng.random() < nulls:
            event[rng.choice(("key", "value", "value"))] = None
        if rng.random() < headers:
            value = rng.choice(("1", "", None))
            event["headers"] = [*event.get("headers", []), ["h", value]]
        if isinstance(event["value"], int) and rng.random() < 0.1:
            event["value"] = rng.choice(((1 << 63) - 1, -(1 << 63), 0))


def _bad_bytes(rng: random.Random, scenario: Scenario) -> None:
    """Replace some longs by text, which cannot be deserialized."""
    if rng.random() < 0.7:
        handler = {"deserialization_handler": "continue"}
        scenario["config"] = {**scenario.get("config", {}), **handler}
    for event in scenario["events"]:
        for part in ("key", "value"):
            if isinstance(event.get(part), int) and rng.random() < 0.15:
                event[part] = "no long"


def _text(rng: random.Random, scenario: Scenario) -> None:
    """Compare the text of the description."""
    # The representation of functions depends on the language.
    if not any("topic_expr" in op for op in scenario["topology"]):
        scenario["describe_text"] = True


def _clock(rng: random.Random, scenario: Scenario) -> None:
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(scenario["events"]) + 1)
        event = {"advance_wall_clock_ms": rng.choice((0, 1, 9, 33, 5_000))}
        scenario["events"].insert(place, event)


def _outlying_time(rng: random.Random, scenario: Scenario) -> None:
    """Move one event far away in time. With larger distances, Java's caches search for minutes."""
    events = [event for event in scenario["events"] if "ts" in event]
    if events:
        event = rng.choice(events)
        event["ts"] = rng.choice((0, 0, 0, 1 << 32, -1, -5))


_TWISTS: list[Callable[[random.Random, Scenario], None]] = [
    _setting,
    _setting,
    _stores,
    _stores,
    _windows,
    _joins,
    _buffers,
    _insert_operator,
    _insert_operator,
    _add_sink,
    _names,
    _store_names,
    _topics,
    _bad_bytes,
    _text,
    _text,
    _stretch_times,
    _shift_times,
    _repeat_events,
    _other_events,
    _other_events,
    _clock,
    _outlying_time,
]
