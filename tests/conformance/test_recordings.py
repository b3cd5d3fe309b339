"""Kafka Streams still produces the recorded fixtures, and agrees on new random groups.

The recorders are Java programs, which this test runs; `tests/java/README.md` describes how to run
them manually.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest
from conformance.oracle.process import OracleUnavailable
from support.broker.recorded_groups import as_recorded, random_case, state_of
from support.recordings import RECORDINGS, Recording, assignments

from millstream.assignment.placement.high_availability import assign_high_availability

GROUPS = 500


def answer_or_skip(request: Callable[[], str]) -> str:
    """Return Kafka Streams' answer, or skip the test if it is not available."""
    try:
        return request()
    except OracleUnavailable as why:
        pytest.skip(str(why))


@pytest.mark.extended
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.path.name)
def test_a_fixture_is_reproducible(recording: Recording) -> None:
    """Goal: unit tests compare with Kafka Streams' real results, byte for byte."""
    assert answer_or_skip(recording.record_again) == recording.path.read_text()


@pytest.mark.extended
def test_random_groups_are_assigned_like_in_kafka_streams() -> None:
    """Goal: both assignors also agree on groups that are not recorded, including process ids that
    use all bits, and several standbys of a task that move at once."""
    random = Random(431)
    groups = "".join(json.dumps(random_case(random)) + "\n" for _ in range(GROUPS))
    cases = list(map(json.loads, answer_or_skip(lambda: assignments(groups)).splitlines()))
    assert len(cases) == GROUPS
    for case in cases:
        given = assign_high_availability(state_of(case))
        probing = any(mine.follow_up_ms is not None for mine in given.values())
        assert (as_recorded(given), probing) == (case["result"], case["probing"]), case
