"""Faults in the time limits of a batch (`runtime/task`, `runtime/loop`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_SIZE = "runtime/task/time_limits.py"
_LIMITS = "runtime/task/time_limits.py"
_TASK = "runtime/task/stream_task.py"
_QUEUE = "runtime/task/queues/record_queue.py"
_COMPILE = "runtime/task/compile_operator.py"
_OVERDUE = "runtime/loop/uncommitted_work.py"
_PUNCTUATIONS = "runtime/task/punctuations.py"
_SINKS = "runtime/task/sinks.py"

_SLOW = "tests/unit/runtime/task/test_slow_functions.py"
_UNIT = "tests/unit/runtime/task/test_time_limits.py"
_COMMITS = "tests/unit/runtime/loop/test_overdue_commits.py"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "the first batch has more than one record",
        _LIMITS,
        "else BatchSize(1, self.batch_ms)",
        "else BatchSize(128, self.batch_ms)",
        tests=(_SLOW,),
    ),
    mutant(
        "batches do not shrink",
        _SIZE,
        "            self.limit = max(1, count * self._batch_ms // took_ms)\n",
        "            pass\n",
        tests=(_UNIT,),
    ),
    mutant(
        "a reopened task loses its batch sizes",
        _LIMITS,
        "            pace = self._paces[task_id] = TaskPace(",
        "            pace = TaskPace(",
        tests=(_UNIT,),
    ),
    mutant(
        "an interrupted batch is retried with the same size",
        _TASK,
        "        self._pace.restart()\n",
        "",
        tests=(_SLOW,),
    ),
    mutant(
        "interrupted functions cannot be called again",
        _LIMITS,
        "has_raised = timer.fired and calls is not None and calls.restore()",
        "has_raised = timer.fired",
        tests=(_UNIT,),
    ),
    mutant(
        "a single record is interrupted like a batch",
        _TASK,
        "divisible=count > 1):\n                executor.run",
        "divisible=True):\n                executor.run",
        tests=(_SLOW,),
    ),
    mutant(
        "stream joiners cannot be interrupted",
        _COMPILE,
        "elif isinstance(value, StreamJoiner):",
        "elif isinstance(value, str) and isinstance(value, StreamJoiner):",
        tests=(_SLOW,),
    ),
    mutant(
        "whole polls are deserialized in one step",
        _QUEUE,
        "limit = size if pace is None else min(size, pace.limit)",
        "limit = size",
        tests=(_SLOW,),
    ),
    mutant(
        "records after an interrupted deserialization are lost",
        _QUEUE,
        "        taken = len(chunk.raw.offsets)\n",
        "        taken = limit\n",
        tests=(_SLOW,),
    ),
    mutant(
        "serdes of sinks cannot be interrupted",
        _SINKS,
        "self._interruptible(objects)",
        "objects",
        tests=(_SLOW,),
    ),
    mutant(
        "a batch leaves more in the caches than a flush can process in time",
        _TASK,
        "limit = min(limit, max(1, self._pace.flush.limit - self._unflushed))",
        "limit = min(limit, self._pace.batch.limit)",
        tests=(_SLOW,),
    ),
    mutant(
        "no commit happens before the caches are too full",
        _TASK,
        "            or self._flush_is_due\n",
        "",
        tests=(_SLOW,),
    ),
    mutant(
        "all due punctuators are called in one step",
        _PUNCTUATIONS,
        "            if deadline is not None and deadline.passed:\n                break\n",
        "",
        tests=(_SLOW,),
    ),
    mutant(
        "the next record is processed before due punctuators",
        _TASK,
        "        if self._punctuations_due and not deadline.passed:",
        "        if False:",
        tests=(_SLOW,),
    ),
    mutant(
        "a slow record and the punctuator it triggers are one step",
        _TASK,
        "        if deadline.passed:\n            # Punctuations",
        "        if False:\n            # Punctuations",
        tests=(_SLOW,),
    ),
    mutant(
        "records that exceed the limits together are retried endlessly",
        _TASK,
        "            or self._pace.commits_each\n",
        "",
        tests=(_SLOW,),
    ),
    mutant(
        "records that exceed the limits together are interrupted after each commit",
        _LIMITS,
        "        if self.batch.limit > 1:\n            self.commits_each",
        "        if True:\n            self.commits_each",
        tests=(_SLOW,),
    ),
    mutant(
        "user code that catches everything loses interrupted records",
        _LIMITS,
        "            if has_raised:\n",
        "            if False:\n",
        tests=(_SLOW,),
    ),
    mutant(
        "a record that takes too long is retried endlessly",
        _LIMITS,
        "        if pace.exceeded == unit and pace.repeats:",
        "        if pace.exceeded == unit and pace.repeats and False:",
        tests=(_UNIT,),
    ),
    mutant(
        "a paused process fails",
        _LIMITS,
        "        if pace.exceeded == unit and pace.repeats:",
        "        if True:",
        tests=(_UNIT,),
    ),
    mutant(
        "repeatedly interrupted work counts as new",
        _OVERDUE,
        "        if self._since_ms is None or began_ms",
        "        if True or began_ms",
        tests=(_COMMITS,),
    ),
    mutant(
        "an idle thread has overdue commits",
        _OVERDUE,
        "return waits_ms if waits_ms > due_ms and is_at_work else 0",
        "return waits_ms if waits_ms > due_ms else 0",
        tests=(_COMMITS,),
    ),
    mutant(
        "a failed batch is not part of the uncommitted work",
        _OVERDUE,
        "        began_ms = self._batch_ms if self._attempt_ms is None else self._attempt_ms\n",
        "        began_ms = self._attempt_ms\n",
        tests=(_COMMITS,),
    ),
    mutant(
        "interrupted uncommitted work is reported with the next attempt",
        _OVERDUE,
        "        self._attempt_ms = self._batch_ms = None\n",
        "        self._batch_ms = None\n",
        tests=(_COMMITS,),
    ),
)
