"""Where a stream thread is, read off its stack from another thread: nothing is noted on the way.

That costs the thread nothing, for each record or otherwise, and is done only when somebody asks:
when it has not come round for long. What is read is a guess while the thread goes on; of one that
hangs it is exact.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from millstream.operators.aggregates.cached_loops import Updates
from millstream.operators.batch import Batch
from millstream.operators.calls import call_each
from millstream.operators.operator import Operator
from millstream.runtime.stall import Stall
from millstream.runtime.task.executor import Station
from millstream.runtime.task.node_context import NodeContext
from millstream.runtime.task.stream_task import StreamTask

#: How many frames of the stack are told, the innermost ones.
_MOST_FRAMES: Final = 40


def depth_of(frame: FrameType) -> int:
    """How many frames there are down to this one."""
    return sum(1 for _ in _outwards(frame))


def stall_of(frame: FrameType, silent_ms: int, skip: int = 0) -> Stall:
    """Where a thread is.

    Args:
        frame: its innermost frame.
        silent_ms: for how long it has made no progress, in milliseconds.
        skip: how many outermost frames nobody wants to see.
    """
    task_id = node = topic = partition = offset = None
    has_row = False
    for each in _outwards(frame):
        found = each.f_locals
        if node is None:
            node = _node(found)
        if task_id is None:
            task_id = next((str(v.task_id) for v in found.values() if _knows_task(v)), None)
        if not has_row and (row := _row(each)) is not None:
            has_row = True
            batch, index = row
            metadata = batch.metadata_of(index)
            if metadata is not None and metadata.topic is not None:
                topic, partition, offset = metadata.topic, metadata.partition, metadata.offset
    return Stall(silent_ms, task_id, node, topic, partition, offset, _stack(frame, skip))


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    at: FrameType | None = frame
    while at is not None:
        yield at
        at = at.f_back


def _knows_task(value: Any) -> bool:
    return isinstance(value, StreamTask | NodeContext)


def _node(found: dict[str, Any]) -> str | None:
    for value in found.values():
        if isinstance(value, NodeContext):
            return value.node
        if isinstance(value, Operator) and isinstance(
            context := getattr(value, "context", None), NodeContext
        ):
            return context.node
    station = found.get("station")
    return station.name if isinstance(station, Station) else None


def _row(frame: FrameType) -> tuple[Batch, int] | None:
    """The record that a frame works on: those who call user code for each record of a batch have
    its index at hand, to tell on which one it fails."""
    found = frame.f_locals
    batch = found.get("batch")
    if not isinstance(batch, Batch):
        return None
    index = found.get("index")
    if frame.f_code is call_each.__code__:
        # The results so far are those of the records before; `index` is where the last one failed.
        done = len(found["results"]) - found.get("done", 0)
        index = done if index is None else index + 1 + done
    if isinstance(updates := found.get("updates"), Updates):
        index = updates.at[0]
    return (batch, index) if isinstance(index, int) and 0 <= index < len(batch) else None


def _stack(frame: FrameType, skip: int) -> tuple[str, ...]:
    summary = traceback.extract_stack(frame)[skip:][-_MOST_FRAMES:]
    return tuple(
        f"{each.filename}:{each.lineno} in {each.name}: {each.line or ''}".rstrip(": ")
        for each in summary
    )
