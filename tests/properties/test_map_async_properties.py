"""The guarantees of `map_async`, with events in random order.

Method: the calls of one task end in an order that Hypothesis chooses, with commits, drains and
crashes in between; the results are compared with the list of input records.

- A committed offset never passes a record that is not completed.
- Results are in the order of keys, or of the partition.
- At-least-once: every record below the committed offset has a result. Exactly-once: each of these
  records has exactly one result, and there are no others.
- The numbers of calls and of records in flight are limited.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.tasks.concurrent_bench import ConcurrentBench

from millstream import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE_V2,
    LogAndContinueProcessingExceptionHandler,
    Materialized,
    StreamsBuilder,
    Topology,
)
from millstream.serdes import LONG, STRING

KEYS = (b"a", b"b", b"c", None)
CONCURRENCY = 3
#: The maximum number of records in flight of a task.
ROOM = 2 * CONCURRENCY + 500

Ordering = Literal["key", "none", "partition"]
Shape = Literal["alone", "fanned out", "twice", "stored"]


async def fail_every_seventh(value: int) -> int:
    """The concurrent call; fails for every seventh value."""
    if value % 7 == 6:
        raise ValueError(value)
    return value


def topology(shape: Shape, ordering: Ordering) -> Topology:
    """Build a topology that passes ids through `map_async`."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=LONG)
    if shape == "fanned out":
        # Each record is repeated three times with its key.
        stream = stream.flat_map_values(lambda value: [value] * 3)
    if shape == "stored":
        kept = Materialized("kept", kind="in_memory", key=STRING, value=LONG)
        stream = stream.group_by_key().reduce(lambda old, new: new, store=kept).to_stream()
    stream = stream.map_async(fail_every_seventh, concurrency=CONCURRENCY, ordering=ordering)
    if shape == "twice":
        stream = stream.map_async(fail_every_seventh, concurrency=CONCURRENCY, ordering=ordering)
    stream.to("out", key=STRING, value=LONG)
    return builder.build()


class MapAsync(RuleBasedStateMachine):
    """A task and its input."""

    shape: Shape = "alone"
    ordering: Ordering = "key"
    guarantee = AT_LEAST_ONCE

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.bench = ConcurrentBench(
            topology(self.shape, self.ordering),
            Path(self.folder.name),
            processing_guarantee=self.guarantee,
            statestore_cache_max_bytes=0,
            processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        )
        self.bench.held.on_wait = self._waited
        self.fed: list[tuple[bytes | None, int]] = []
        self.lives = 0
        #: The number of outputs at the start of each incarnation.
        self.starts = [0]

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.settle()
            self.check()
            assert self.bench.offset == len(self.fed)
            self.bench.close()
            self.folder.cleanup()

    def _waited(self) -> None:
        """End one call and advance the clock towards the drain timeout."""
        self.bench.clock.advance(300)
        if self.bench.held.begun:
            self.bench.held.end(len(self.bench.held.begun) // 2)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12))
    def feed(self, keys: list[bytes | None]) -> None:
        for key in keys:
            if self.shape == "stored" and key is None:
                continue
            number = len(self.fed)
            self.fed.append((key, number))
            self.bench.feed(key, number.to_bytes(8, "big"), number)

    @rule(limit=st.sampled_from((1, 3, 1_000)))
    def step(self, limit: int) -> None:
        self.bench.step(limit)

    @precondition(lambda self: self.bench.held.begun)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """End a call, possibly one of a closed task."""
        self.bench.held.end(data.draw(st.integers(0, len(self.bench.held.begun) - 1)))

    @rule()
    def commit(self) -> None:
        self.bench.commit()

    @rule()
    def drain(self) -> None:
        self.bench.drain()

    @rule()
    def crash(self) -> None:
        self.bench.crash()
        self.starts.append(len(self.bench.outputs))

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "bench"):
            return
        self._check_bounds()
        done = self._done()
        expected = [n for _, n in self.fed[: self.bench.offset] if n % 7 != 6]
        times = 3 if self.shape == "fanned out" else 1
        if self.guarantee == EXACTLY_ONCE_V2:
            assert sorted(done) == sorted(expected * times)
        else:
            assert set(expected) <= set(done)
        self._check_order()

    def _done(self) -> list[int]:
        outputs = [each for each in self.bench.outputs if each.topic == "out"]
        return [int.from_bytes(each.value or b"", "big") for each in outputs]

    def _check_bounds(self) -> None:
        mine = [call for runner, call in self.bench.held.begun if not runner.is_closed]
        assert len(mine) <= CONCURRENCY * (2 if self.shape == "twice" else 1)
        times = {"fanned out": 3, "twice": 2}.get(self.shape, 1)
        assert self.bench.task.in_flight <= ROOM * times

    def _check_order(self) -> None:
        ends = [*self.starts[1:], len(self.bench.outputs)]
        for start, end in zip(self.starts, ends, strict=True):
            sequences: dict[Any, list[int]] = defaultdict(list)
            for each in self.bench.outputs[start:end]:
                if each.topic != "out" or (self.ordering == "key" and each.key is None):
                    continue
                order_key = each.key if self.ordering == "key" else None
                sequences[order_key].append(int.from_bytes(each.value or b"", "big"))
            in_offset_order = self.guarantee == EXACTLY_ONCE_V2 and self.shape == "alone"
            if self.ordering != "none" or in_offset_order:
                for numbers in sequences.values():
                    assert numbers == sorted(numbers)


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
@pytest.mark.parametrize("ordering", ["key", "none", "partition"])
@pytest.mark.parametrize("shape", ["alone", "fanned out", "twice", "stored"])
def test_guarantees_of_map_async(shape: Shape, ordering: Ordering, guarantee: str) -> None:
    """For every shape of topology."""
    machine = type(
        "Machine", (MapAsync,), {"shape": shape, "ordering": ordering, "guarantee": guarantee}
    )
    run_state_machine_as_test(
        machine, settings=settings(max_examples=6, stateful_step_count=30, deadline=None)
    )
