"""A program as a child process that is started again when its files change."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from millstream.cli.output import BAD, FAINT, say
from millstream.cli.programs import guard
from millstream.cli.programs.changes import Snapshot, broken, changed, snapshot

_LOOK_S: Final = 0.1
_LOOK_AT_FILES_S: Final = 0.5
#: Editors write a file in several steps, and version control writes many files.
_SETTLE_S: Final = 0.2
_SETTLE_MOST_S: Final = 2.0
#: Who writes a file more often than this meanwhile is a program, and not an editor.
_WRITES_MOST: Final = 2
#: `KafkaStreams.run` ends within 75 seconds of a signal, whatever Spark does.
_CLOSE_S: Final = 80.0

#: What is heeded, and what the program is told: the end of a terminal is an end in order as well.
_HEEDED: Final = {
    signal.SIGINT: signal.SIGINT,
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGHUP: signal.SIGTERM,
    signal.SIGQUIT: signal.SIGTERM,
}


class Supervised:
    """Runs a command until it ends by itself or a signal comes, again after each change.

    Every signal that comes is passed on to the program alone, which is in a process group of its
    own: else it would get those of a terminal twice, and its own children as well. Where this
    process is killed, a guard beside it ends the program. Outside of the terminal's group it cannot
    read from the terminal, and gets an empty input instead.

    Args:
        command: the words that run the program.
        environment: its variables.
        watched: the folder whose changes start it again; None for no such folder.
        before_start: called before each start.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        watched: Path | None,
        before_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._watched = watched
        self._before_start = before_start
        self._signals: list[int] = []
        self._passed_on = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._restless: set[str] = set()

    def run(self) -> int:
        """Run it, and return the exit code of its last run."""
        with self._heeding_signals(), self._guarded():
            try:
                return self._run()
            finally:
                self._end()

    def _run(self) -> int:
        while True:
            seen = {} if self._watched is None else snapshot(self._watched)
            self._before_start()
            child = self._started()
            seen = self._follow(child, seen)
            if self._signals:
                self._follow(child, seen)
            if self._signals or self._watched is None:
                return _exit_code(child.wait())
            if child.poll() is not None:
                code = _exit_code(child.returncode)
                say(f"ended with exit code {code}; waits for a change", BAD if code else FAINT)
                self._wait_for_change(seen)
                if self._signals:
                    return code
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        # Without a shell, in a process group of its own.
        child = subprocess.Popen(
            self._command,
            env=self._environment,
            process_group=0,
            # Who reads from a terminal without being its foreground is stopped.
            stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
        )
        self._child, self._passed_on = child, 0
        self._tell_guard(child.pid)
        return child

    def _follow(self, child: subprocess.Popen[bytes], seen: Snapshot) -> Snapshot:
        """Until the program ends, or its files have changed; the files as they were before that."""
        look_at = time.monotonic() + _LOOK_AT_FILES_S
        while child.poll() is None:
            self._pass_on(child)
            time.sleep(_LOOK_S)
            if self._watched is not None and not self._signals and time.monotonic() >= look_at:
                look_at = time.monotonic() + _LOOK_AT_FILES_S
                now = self._settled(seen)
                if self._signals:
                    continue
                paths = self._changed(seen, now)
                problem = broken(paths)
                if problem is not None:
                    say(f"{problem}; what runs goes on", BAD)
                elif paths:
                    say(f"{_listed(paths, self._watched)} changed: starts again", FAINT)
                    return seen
                seen = now
        return seen

    def _wait_for_change(self, seen: Snapshot) -> None:
        assert self._watched is not None
        while not self._signals:
            time.sleep(_LOOK_AT_FILES_S)
            if self._changed(seen, self._settled(seen)):
                return

    def _settled(self, seen: Snapshot) -> Snapshot:
        """The files now; if something has changed, as soon as nothing changes any more, within
        bounds. Files that somebody writes all the time are not looked at any more."""
        assert self._watched is not None
        now = snapshot(self._watched)
        if not self._changed(seen, now):
            return now
        writes: Counter[str] = Counter()
        give_up = time.monotonic() + _SETTLE_MOST_S
        while not self._signals and time.monotonic() < give_up:
            time.sleep(_SETTLE_S)
            later = snapshot(self._watched)
            moved, now = self._changed(now, later), later
            if not moved:
                return now
            writes.update(moved)
        restless = sorted(path for path, count in writes.items() if count > _WRITES_MOST)
        if restless and not self._signals:
            self._restless.update(restless)
            say(f"{_listed(restless, self._watched)} changes all the time: not watched", FAINT)
        return now

    def _changed(self, before: Snapshot, after: Snapshot) -> list[str]:
        return [path for path in changed(before, after) if path not in self._restless]

    def _pass_on(self, child: subprocess.Popen[bytes]) -> None:
        while self._passed_on < len(self._signals):
            child.send_signal(self._signals[self._passed_on])
            self._passed_on += 1

    def _end(self) -> None:
        """Make sure that the program has ended: in order, or killed when it takes too long."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + _CLOSE_S
            while child.poll() is None and time.monotonic() < deadline:
                self._pass_on(child)
                time.sleep(_LOOK_S)
        if child.poll() is None:
            child.kill()
        child.wait()
        self._tell_guard(0)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        words = [sys.executable, "-I", guard.__file__, str(_CLOSE_S)]
        # In a session of its own, so that it outlives the terminal.
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, bufsize=0, start_new_session=True
        ) as self._guard:
            yield

    def _tell_guard(self, pid: int) -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it
            self._guard.stdin.write(f"{pid}\n".encode())

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        # What is ignored, as under nohup, stays so.
        heeded = [each for each in _HEEDED if signal.getsignal(each) is not signal.SIG_IGN]
        before = {each: signal.signal(each, self._on_signal) for each in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signals.append(_HEEDED[signal.Signals(number)])


def _exit_code(code: int) -> int:
    """As shells tell the end by a signal."""
    return 128 - code if code < 0 else code


def _listed(paths: Sequence[str], folder: Path) -> str:
    shown = [str(Path(path).relative_to(folder)) for path in paths[:3]]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
