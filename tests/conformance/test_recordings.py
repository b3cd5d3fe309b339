"""The fixtures that Kafka Streams made are what it would make today, and it agrees on fresh groups.

The recorders are Java programs that are run here; `tests/java/README.md` says how to do it by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest
from conformance.oracle.process import OracleUnavailable
from support.broker.recorded_groups import random_case, shown, state_of
from support.recordings import RECORDINGS, Recording, assignments

from millstream.assignment.placing.high_availability import assign_high_availability

GROUPS = 500


def answered(ask: Callable[[], str]) -> str:
    """What Kafka Streams says, or a skip where it cannot be run."""
    try:
        return ask()
    except OracleUnavailable as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.path.name)
def test_a_fixture_can_be_made_again(recording: Recording) -> None:
    """Goal: what a unit test takes for Kafka Streams' answer is one, byte for byte."""
    assert answered(recording.again) == recording.path.read_text()


def test_fresh_groups_are_assigned_as_kafka_streams_does() -> None:
    """Goal: the recorded groups are not the only ones in which both decide alike, process ids with
    all their bits and standbys of one task that move at once included."""
    random = Random(431)
    asked = "".join(json.dumps(random_case(random)) + "\n" for _ in range(GROUPS))
    cases = list(map(json.loads, answered(lambda: assignments(asked)).splitlines()))
    assert len(cases) == GROUPS
    for case in cases:
        given = assign_high_availability(state_of(case))
        told = any(mine.follow_up_ms is not None for mine in given.values())
        assert (shown(given), told) == (case["result"], case["probing"]), case
