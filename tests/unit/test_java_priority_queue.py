"""The queue order among equals is Java's: sequences recorded from java.util.PriorityQueue (17)."""

import json
from pathlib import Path

import pytest

from millstream.java_priority_queue import JavaPriorityQueue

_RECORDED = json.loads((Path(__file__).parent / "java_priority_queue.json").read_text())


@pytest.mark.parametrize("recorded", _RECORDED, ids=range(len(_RECORDED)))
def test_takes_elements_in_the_order_in_which_java_does(recorded: dict[str, list[int]]) -> None:
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
