"""A batch at a time gives what one record at a time gives, whatever the topology and the batches.

Method: random topologies with forks, merges, meeting sinks and several stores, and an aggregator
that changes its aggregate in place; all events queued at once; the engine with batches of 1, 7 and
1,000 records against a plain depth-first interpreter.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from support.batches.engine import run_engine, taking_order
from support.batches.oracle import Oracle
from support.batches.programs import Event, Program, events, programs
from support.effort import EXAMPLES


@pytest.mark.parametrize("batch_size", [1, 7, 1_000])
@settings(max_examples=EXAMPLES, deadline=None)
@given(program=programs(), queued=events())
def test_batches_change_nothing(batch_size: int, program: Program, queued: list[Event]) -> None:
    oracle = Oracle(program)
    for event in taking_order(program, queued):
        oracle.feed(event)
    run = run_engine(program, queued, batch_size)
    assert dict(run.outputs) == dict(oracle.outputs)
    assert dict(run.changelogs) == dict(oracle.changelogs)
    assert {k: v for k, v in run.stores.items() if v} == {
        k: v for k, v in oracle.stores.items() if v
    }


@settings(max_examples=EXAMPLES, deadline=None)
@given(program=programs(), queued=events())
def test_a_cache_changes_only_how_many_updates_appear(
    program: Program, queued: list[Event]
) -> None:
    """Stores that read straight from the input end the same; logs keep each key's last value."""
    oracle = Oracle(program)
    for event in taking_order(program, queued):
        oracle.feed(event)
    run = run_engine(program, queued, 7, cache_bytes=10_000_000, commit_every=2)
    for index, op in enumerate(program):
        if op.name in ("count", "reduce", "aggregate") and _is_fed_by_streams(program, index):
            assert run.stores[index] == oracle.stores[index]
            last = {key: value for key, value, _ in run.changelogs[index]}
            expected = {key: value for key, value, _ in oracle.changelogs[index]}
            live = {key: value for key, value in expected.items() if value is not None}
            assert {key: value for key, value in last.items() if value is not None} == live


def _is_fed_by_streams(program: Program, index: int) -> bool:
    """Whether no other store lies upstream, whose collapsed updates would change the input."""
    for parent in program[index].parents:
        op = program[parent]
        if op.name in ("count", "reduce", "aggregate") or not _is_fed_by_streams(program, parent):
            return False
    return True
