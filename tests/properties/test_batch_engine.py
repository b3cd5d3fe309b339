"""Batched processing has the same results as record-at-a-time processing, for random topologies.

Method: random topologies with forks, merges, shared sinks and several stores, and an aggregator
that changes its aggregate in place. All events are queued at once. The engine with batches of 1, 7
and 1,000 records is compared with a simple depth-first interpreter.
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
def test_results_do_not_depend_on_the_batch_size(
    batch_size: int, program: Program, queued: list[Event]
) -> None:
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
def test_a_cache_only_affects_intermediate_updates(program: Program, queued: list[Event]) -> None:
    """Stores of input streams have the same final content and the same last value of each key in
    their changelogs."""
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
    """Whether there is no other store upstream, whose cached updates would change the input."""
    for parent in program[index].parents:
        op = program[parent]
        if op.name in ("count", "reduce", "aggregate") or not _is_fed_by_streams(program, parent):
            return False
    return True
