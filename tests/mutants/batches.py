"""Faults in the time limits of a batch (`runtime/task`, `runtime/loop`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_SIZE = "runtime/task/queues/batch_size.py"
_LIMITS = "runtime/task/time_limits.py"
_TASK = "runtime/task/stream_task.py"
_QUEUE = "runtime/task/queues/record_queue.py"
_COMPILE = "runtime/task/compile_operator.py"
_OVERDUE = "runtime/loop/overdue_commits.py"
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
        "a task forgets its pace when it is given up",
        _LIMITS,
        "            pace = self._paces[task_id] = TaskPace(",
        "            pace = TaskPace(",
        tests=(_UNIT,),
    ),
    mutant(
        "a batch that was given up is tried again in the same size",
        _TASK,
        "        self._pace.restart()\n",
        "",
        tests=(_SLOW,),
    ),
    mutant(
        "stopped functions never work again",
        _LIMITS,
        "has_raised = armed.rang and calls is not None and calls.restore()",
        "has_raised = armed.rang",
        tests=(_UNIT,),
    ),
    mutant(
        "a single record is stopped as a batch is",
        _TASK,
        "divisible=count > 1):\n                executor.run",
        "divisible=True):\n                executor.run",
        tests=(_SLOW,),
    ),
    mutant(
        "the joiners of streams cannot be stopped",
        _COMPILE,
        "elif isinstance(value, StreamJoiner):",
        "elif isinstance(value, str) and isinstance(value, StreamJoiner):",
        tests=(_SLOW,),
    ),
    mutant(
        "whole polls are deserialized at once",
        _QUEUE,
        "limit = size if pace is None else min(size, pace.limit)",
        "limit = size",
        tests=(_SLOW,),
    ),
    mutant(
        "records behind an interrupted deserialization are lost",
        _QUEUE,
        "        taken = len(chunk.raw.offsets)\n",
        "        taken = limit\n",
        tests=(_SLOW,),
    ),
    mutant(
        "serdes of sinks cannot be stopped",
        _SINKS,
        "self._guarded(objects)",
        "objects",
        tests=(_SLOW,),
    ),
    mutant(
        "a batch leaves more in the caches than a flush has time for",
        _TASK,
        "limit = min(limit, max(1, self._pace.flush.limit - self._unflushed))",
        "limit = min(limit, self._pace.batch.limit)",
        tests=(_SLOW,),
    ),
    mutant(
        "no commit comes before the caches hold too much",
        _TASK,
        "            or self._flush_is_due\n",
        "",
        tests=(_SLOW,),
    ),
    mutant(
        "all punctuators that are due are called in one go",
        _PUNCTUATIONS,
        "            if deadline is not None and deadline.passed:\n                break\n",
        "",
        tests=(_SLOW,),
    ),
    mutant(
        "the next record comes before punctuators that are due",
        _TASK,
        "        if self._calls_left and not deadline.passed:",
        "        if False:",
        tests=(_SLOW,),
    ),
    mutant(
        "a slow record and the punctuator that it makes due are one step",
        _TASK,
        "        if deadline.passed:\n            # The calls",
        "        if False:\n            # The calls",
        tests=(_SLOW,),
    ),
    mutant(
        "records that exceed the limits together are repeated endlessly",
        _TASK,
        "            or self._pace.commits_each\n",
        "",
        tests=(_SLOW,),
    ),
    mutant(
        "records that exceed the limits together are given up again after each commit",
        _LIMITS,
        "        if self.batch.limit > 1:\n            self.commits_each",
        "        if True:\n            self.commits_each",
        tests=(_SLOW,),
    ),
    mutant(
        "user code that catches everything loses what an interruption has left out",
        _LIMITS,
        "            if has_raised:\n",
        "            if False:\n",
        tests=(_SLOW,),
    ),
    mutant(
        "a record that is too long for the limits is repeated endlessly",
        _LIMITS,
        "        if pace.exceeded == unit and pace.repeats:",
        "        if pace.exceeded == unit and pace.repeats and False:",
        tests=(_UNIT,),
    ),
    mutant(
        "a process that was paused fails",
        _LIMITS,
        "        if pace.exceeded == unit and pace.repeats:",
        "        if True:",
        tests=(_UNIT,),
    ),
    mutant(
        "work that is given up again and again counts as new",
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
        "a batch that failed is not part of the uncommitted work",
        _OVERDUE,
        "        began_ms = self._batch_ms if self._attempt_ms is None else self._attempt_ms\n",
        "        began_ms = self._attempt_ms\n",
        tests=(_COMMITS,),
    ),
    mutant(
        "uncommitted work that was given up is described with the next attempt",
        _OVERDUE,
        "        self._attempt_ms = self._batch_ms = None\n",
        "        self._batch_ms = None\n",
        tests=(_COMMITS,),
    ),
)
