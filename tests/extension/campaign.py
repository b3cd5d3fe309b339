"""Runs random cases in child processes, and reduces failing ones."""

from __future__ import annotations

import ast
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import IO, Any, Final

from support.waiting import wait_or_kill

from extension.cases.targets import trace_of
from extension.cases.values import Trace
from extension.variants import Variant, VariantError

#: The number of cases of a child process, which bounds its memory.
_CASES_PER_CHILD: Final = 5_000
#: How long the cases of a target run before those of the next target.
_TURN_S: Final = 2.0
_MAX_REDUCTIONS: Final = 2_000
_STDERR_LINES: Final = 60
#: The first line of the report of a sanitizer or of Python's fault handler.
_REPORT: Final = re.compile("ERROR: AddressSanitizer|runtime error:|Fatal Python error")
#: The maximum duration of a case; those with a broker take seconds, and Valgrind is slow.
_CASE_TIMEOUT_S: Final = 300.0
#: The maximum time until a child process is ready.
_START_TIMEOUT_S: Final = 900.0


class Child:
    """A child process that runs cases.

    Raises:
        VariantError: the extension is not available in the child.
    """

    def __init__(self, variant: Variant, hash_seed: int) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            variant.command("-m", "extension.worker"),
            # Freed memory is overwritten, unless the variant has its own allocator.
            env={
                "PYTHONMALLOC": "debug",
                **variant.variables(),
                "PYTHONHASHSEED": str(hash_seed),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self.cases = 0
        start = self._answer(_START_TIMEOUT_S)
        if start:
            self.close()
            raise VariantError("\n".join(start))

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, target: str, case: str | Trace) -> list[str]:
        """Run a case; return its faults. After a crash, the child is no longer alive."""
        self.cases += 1
        assert self._process.stdin is not None
        # A child that has crashed does not read; the answer contains the reason.
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{(target, case)!r}\n".encode())
            self._process.stdin.flush()
        return self._answer(_CASE_TIMEOUT_S)

    def close(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        wait_or_kill(self._process, 10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def _answer(self, timeout_s: float) -> list[str]:
        assert self._process.stdout is not None
        number, received = self._process.stdout.fileno(), b""
        while not received.endswith(b"\n"):
            if not select.select([number], [], [], timeout_s)[0]:
                # Python's fault handler prints the stacks.
                self._process.send_signal(signal.SIGABRT)
                return [f"no answer within {timeout_s:.0f} s\n{self._end()}"]
            part = os.read(number, 1 << 16)
            if not part:
                return [self._end()]
            received += part
        answer: list[str] = ast.literal_eval(received.decode())
        return answer

    def _end(self) -> str:
        """Describe the end of the process."""
        code = wait_or_kill(self._process, 30)
        reason = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").splitlines()
        starts = (index for index, line in enumerate(lines) if _REPORT.search(line))
        start = next(starts, max(0, len(lines) - _STDERR_LINES))
        return "\n".join([f"The process ended with {reason}:", *lines[start:][:_STDERR_LINES]])


@dataclass
class Failure:
    """A failing case.

    Args:
        case: its name, from which its trace is generated.
        reduced: a part of the trace that also fails; None if the trace alone does not fail.
    """

    target: str
    case: str
    faults: list[str]
    reduced: Trace | None


@dataclass
class Campaign:
    """Runs cases of some targets.

    Args:
        seed: determines all cases.
        max_reduction_s: the maximum duration of a reduction. A candidate that crashes takes
            seconds, because the next one needs another child.
    """

    variant: Variant
    seed: int
    targets: Sequence[str]
    max_reduction_s: float = 60
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    _child: Child | None = None

    def run(self, seconds: float, each: int | None = None) -> None:
        """Run cases for a time, or a number of cases of each target; stop a target at a failure.

        Raises:
            VariantError: the extension is not available in the child process.
        """
        end = time.monotonic() + seconds
        left: dict[str, Iterator[int]] = {
            target: iter(count() if each is None else range(each)) for target in self.targets
        }
        try:
            while left and (each is not None or time.monotonic() < end):
                for target in list(left):
                    if not self._turn(target, left[target], end if each is None else None):
                        del left[target]
        finally:
            self._stop()

    def _turn(self, target: str, numbers: Iterator[int], end: float | None) -> bool:
        """Run cases of a target; return whether it has more."""
        turn_end = min(time.monotonic() + _TURN_S, float("inf") if end is None else end)
        while time.monotonic() < turn_end:
            number = next(numbers, None)
            if number is None:
                return False
            if self._fails(target, f"{self.seed}/{target}/{number}"):
                return False
        return True

    def run_case(self, target: str, case: str) -> None:
        """Run one case."""
        try:
            self._fails(target, case)
        finally:
            self._stop()

    def _fails(self, target: str, case: str) -> bool:
        """Run a case, and reduce it if it fails."""
        faults = self._run(target, case)
        self.counts[target] = self.counts.get(target, 0) + 1
        if faults:
            self._stop()
            reduced = self._reduced(target, trace_of(target, case))
            self.failures.append(Failure(target, case, faults, reduced))
        return bool(faults)

    def _run(self, target: str, case: str | Trace) -> list[str]:
        if self._child is None:
            self._child = Child(self.variant, self.seed % 2**32)
        faults = self._child.run(target, case)
        if not self._child.is_alive or self._child.cases >= _CASES_PER_CHILD:
            self._stop()
        return faults

    def _reduced(self, target: str, trace: Trace) -> Trace | None:
        end = time.monotonic() + self.max_reduction_s

        def fails(candidate: Trace) -> bool:
            return time.monotonic() < end and bool(self._run(target, candidate))

        return reduced(trace, fails) if fails(trace) else None

    def _stop(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def reduced(trace: Trace, fails: Callable[[Trace], bool]) -> Trace:
    """Remove elements from the lists of a failing trace while it still fails."""
    attempts = 0
    progress = True
    while progress:
        progress = False
        for path in _lists(trace):
            size = len(_at(trace, path))
            while size >= 1:
                start = 0
                while start < len(_at(trace, path)) and attempts < _MAX_REDUCTIONS:
                    kept = _at(trace, path)
                    candidate = _replaced(trace, path, kept[:start] + kept[start + size :])
                    attempts += 1
                    if fails(candidate):
                        trace, progress = candidate, True
                    else:
                        start += size
                size //= 2
            if progress:
                # The paths of inner lists have changed.
                break
    return trace


def _lists(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The paths of all lists in a value, outer ones first."""
    found = [path] if isinstance(value, list) else []
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            found += _lists(item, (*path, index))
    return found


def _at(value: Any, path: tuple[int, ...]) -> Any:
    for index in path:
        value = value[index]
    return value


def _replaced(value: Any, path: tuple[int, ...], new: Any) -> Any:
    if not path:
        return new
    index = path[0]
    item = _replaced(value[index], path[1:], new)
    return type(value)([*value[:index], item, *value[index + 1 :]])
