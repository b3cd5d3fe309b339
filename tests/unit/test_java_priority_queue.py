"""The order of equal elements equals recordings of java.util.PriorityQueue (Java 17)."""

import json
from pathlib import Path

import pytest

from millstream.java_priority_queue import JavaPriorityQueue

_RECORDED = json.loads((Path(__file__).parent / "java_priority_queue.json").read_text())


@pytest.mark.parametrize("recorded", _RECORDED, ids=range(len(_RECORDED)))
def test_elements_are_polled_in_the_order_of_java(recorded: dict[str, list[int]]) -> None:
    queue: JavaPriorityQueue[list[int]] = JavaPriorityQueue(key=lambda element: element[1])
    for number, timestamp in enumerate(recorded["first"]):
        queue.offer([number, timestamp])
    polled = []
    for added in recorded["added"]:
        number, timestamp = queue.poll()
        polled.append(number)
        queue.offer([number, timestamp + added])
    assert polled == recorded["polled"]
    assert len(queue) == len(recorded["first"])
