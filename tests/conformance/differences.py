"""Differences between Millstream and Kafka Streams in a scenario, and minimal scenarios."""

from __future__ import annotations

import copy
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from conformance.deliberate import excuse
from conformance.deviations import deviation, up_to_and_with_defect, up_to_defect
from conformance.oracle.process import Scenario
from conformance.vendored.interpret import ASPECTS, compare, run

#: The timeout of a scenario, far longer than any scenario takes.
_SCENARIO_TIMEOUT_S = 20

#: Operations with the same kind of input and output, which can be removed from the middle.
_BYPASSED = frozenset(
    [
        "filter",
        "filter_not",
        "flat_map",
        "flat_map_values",
        "map",
        "map_values",
        "merge",
        "peek",
        "process",
        "process_values",
        "repartition",
        "select_key",
        "suppress",
        "transform_values",
    ]
)

#: Aspect → the first difference in it.
Differences = dict[str, str]


class ScenarioTimeout(Exception):  # noqa: N818
    """Millstream did not finish a scenario in time."""


def differences(scenario: Scenario, *, excused: bool = False) -> Differences:
    """Return the differences from the scenario's expectation, by aspect.

    Where Kafka Streams fails because of a defect (`deviations`), compare the results before it and
    verify that Millstream does not share the defect.

    Args:
        scenario: with its expectation.
        excused: whether to ignore `deliberate` differences.

    Call this in the main thread: a signal interrupts scenarios that do not end.
    """
    previous = signal.signal(signal.SIGALRM, _raise_timeout)
    signal.alarm(_SCENARIO_TIMEOUT_S)
    try:
        found = _differences(scenario)
        if found and excused and excuse(lambda: not _differences(scenario)):
            found = {}
    except Exception as error:
        found = {"harness": f"{type(error).__name__}: {error}"}
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return found


def _differences(scenario: Scenario) -> Differences:
    deviates = deviation(scenario)
    if deviates is None:
        return _compared(scenario, ASPECTS)
    found: Differences = {}
    if deviates.event is not None:
        found = _compared(up_to_defect(scenario, deviates.event), ASPECTS)
    # The only expectation is that Millstream does not fail.
    shared = _compared(up_to_and_with_defect(scenario, deviates.event), ["error"])
    return {**found, "deviation": shared["error"]} if shared else found


def _compared(scenario: Scenario, aspects: list[str]) -> Differences:
    found: Differences = compare(scenario, run(scenario), aspects)
    return found


def minimized(
    scenario: Scenario, condition: Callable[[Scenario], bool], max_trials: int = 300
) -> Scenario:
    """Find a smaller scenario that still satisfies a condition.

    Args:
        scenario: a scenario that satisfies the condition; its expectation is removed.
        condition: such as a certain difference.
        max_trials: the maximum number of evaluated scenarios.
    """
    best = {key: value for key, value in scenario.items() if key != "expect"}
    trials = 0
    while True:
        for smaller in _smaller(best):
            trials += 1
            if trials > max_trials:
                return best
            if condition(smaller):
                best = smaller
                break
        else:
            return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    yield from _with_fewer_events(scenario)
    yield from _with_fewer_operations(scenario)
    for key in scenario.get("config", {}):
        config = {name: value for name, value in scenario["config"].items() if name != key}
        yield {**scenario, "config": config}
    for index, event in enumerate(scenario["events"]):
        if event.get("headers"):
            events = copy.deepcopy(scenario["events"])
            del events[index]["headers"]
            yield {**scenario, "events": events}


def _with_fewer_events(scenario: Scenario) -> Iterator[Scenario]:
    events = scenario["events"]
    size = len(events) // 2
    while size:
        for start in range(0, len(events), size):
            yield {**scenario, "events": events[:start] + events[start + size :]}
        size //= 2


def _with_fewer_operations(scenario: Scenario) -> Iterator[Scenario]:
    operations = scenario["topology"]
    for index, operation in reversed(list(enumerate(operations))):
        rest = operations[:index] + operations[index + 1 :]
        ids = {operation.get("id"), *(branch["id"] for branch in operation.get("branches", []))}
        ids.add((operation.get("default") or {}).get("id"))
        if not any(ids & set(_parents(other)) for other in rest):
            yield _reading_only_known_topics({**scenario, "topology": rest})
        for parent in _parents(operation) if operation["op"] in _BYPASSED else ():
            bypassed = [_with_parent(other, operation.get("id"), parent) for other in rest]
            yield _reading_only_known_topics({**scenario, "topology": bypassed})


def _parents(operation: dict[str, Any]) -> list[str]:
    parents = operation.get("from", [])
    return [parents] if isinstance(parents, str) else list(parents)


def _with_parent(operation: dict[str, Any], old: str | None, new: str) -> dict[str, Any]:
    parents = operation.get("from")
    if parents == old and old is not None:
        return {**operation, "from": new}
    if isinstance(parents, list) and old in parents:
        return {**operation, "from": [new if parent == old else parent for parent in parents]}
    return operation


def _reading_only_known_topics(scenario: Scenario) -> Scenario:
    read = {
        topic
        for operation in scenario["topology"]
        if operation["op"] in ("stream", "table", "global_table", "global_store", "add_source")
        for topic in (operation.get("topic"), *operation.get("topics", []))
    }
    events = [event for event in scenario["events"] if event.get("topic", None) in {None, *read}]
    return {**scenario, "events": events}


def _raise_timeout(number: int, frame: FrameType | None) -> None:
    raise ScenarioTimeout(f"no end after {_SCENARIO_TIMEOUT_S} s")
