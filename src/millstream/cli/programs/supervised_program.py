"""A child process that runs a program, and restarts after file changes."""

from __future__ import annotations

import contextlib
import os
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

from millstream.cli.output import BAD, FAINT, print_message
from millstream.cli.programs import parent_watch

_POLL_INTERVAL_S: Final = 0.1
# A program has a few dozen files, and checking one takes microseconds. File notifications of the
# operating system would require a compiled package for each platform.
_FILE_CHECK_INTERVAL_S: Final = 0.5
#: Editors write a file in several steps, and version control writes many files.
_SETTLE_S: Final = 0.2
_MAX_SETTLE_S: Final = 2.0
#: A file that is written more often than this within `_MAX_SETTLE_S` is written by a program, not
#: by an editor.
_MAX_WRITES: Final = 2
#: `KafkaStreams.run` ends within 75 seconds of a signal, even if Spark does not respond.
_CLOSE_S: Final = 80.0

#: The handled signals, and the signals sent to the program. Closing the terminal also shuts the
#: program down cleanly.
_FORWARDED_SIGNALS: Final = {
    signal.SIGINT: signal.SIGINT,
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGHUP: signal.SIGTERM,
    signal.SIGQUIT: signal.SIGTERM,
}


#: The suffixes of code and configuration files.
_SUFFIXES: Final = (".py", ".toml", ".json", ".yaml", ".yml", ".env", ".properties")
_EXCLUDED_FOLDERS: Final = frozenset({"__pycache__", "node_modules"})
#: A folder with more files contains more than a program.
_MAX_FILES: Final = 20_000

#: The modification time and the size of each file.
Snapshot = dict[str, tuple[int, int]]


def snapshot(folder: Path) -> Snapshot:
    """Return the files of a program.

    Hidden folders and virtual environments are excluded.
    """
    files: Snapshot = {}
    for path in _files(str(folder)):
        try:
            status = os.stat(path)
        except OSError:
            continue  # deleted in the meantime
        files[path] = (status.st_mtime_ns, status.st_size)
        if len(files) == _MAX_FILES:
            break
    return files


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    return sorted({path for path, _ in before.items() ^ after.items()})


def syntax_error(paths: list[str]) -> str | None:
    """Return the first syntax error in the Python files among the paths, or None."""
    for path in paths:
        if not path.endswith(".py"):
            continue
        try:
            compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        except OSError:
            continue
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            return f"{path}{f', line {line}' if line else ''}: {error}"
    return None


def _files(folder: str) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".")
            and each not in _EXCLUDED_FOLDERS
            and not os.path.exists(os.path.join(path, each, "pyvenv.cfg"))
        ]
        yield from (os.path.join(path, each) for each in files if each.endswith(_SUFFIXES))


class SupervisedProgram:
    """Runs a command until it ends or a signal arrives; restarts it after changes.

    The program has its own process group, so that the terminal's signals do not reach it and its
    children twice; each signal is forwarded to the program only. If this process is killed, a
    watcher process ends the program. The program is not in the terminal's foreground group and
    cannot read from the terminal, so its input is empty. Changes in the folder `watched`, if any,
    restart the program; `before_start` is called before each start.
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
        self._forwarded = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._ignored: set[str] = set()

    def run(self) -> int:
        """Run the program, and return the exit code of its last run."""
        with self._handling_signals(), self._running_watcher():
            try:
                return self._run()
            finally:
                self._end()

    def _run(self) -> int:
        while True:
            seen = {} if self._watched is None else snapshot(self._watched)
            self._before_start()
            child = self._start_program()
            seen = self._follow(child, seen)
            if self._signals:
                self._follow(child, seen)
            if self._signals or self._watched is None:
                return _exit_code(child.wait())
            if child.poll() is not None:
                code = _exit_code(child.returncode)
                print_message(
                    f"ended with exit code {code}; waiting for a change", BAD if code else FAINT
                )
                self._wait_for_change(seen)
                if self._signals:
                    return code
            self._end()

    def _start_program(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            self._command,
            env=self._environment,
            process_group=0,
            # Reading from a terminal stops a process outside of the foreground group.
            stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
        )
        self._child, self._forwarded = child, 0
        self._notify_watcher(child.pid)
        return child

    def _follow(self, child: subprocess.Popen[bytes], seen: Snapshot) -> Snapshot:
        """Wait until the program ends or its files change.

        Return the files before the change.
        """
        check_at = time.monotonic() + _FILE_CHECK_INTERVAL_S
        while child.poll() is None:
            self._forward_signals(child)
            time.sleep(_POLL_INTERVAL_S)
            if self._watched is not None and not self._signals and time.monotonic() >= check_at:
                check_at = time.monotonic() + _FILE_CHECK_INTERVAL_S
                now = self._settled(seen)
                if self._signals:
                    continue
                paths = self._changed(seen, now)
                problem = syntax_error(paths)
                if problem is not None:
                    print_message(f"{problem}; not restarted", BAD)
                elif paths:
                    print_message(f"{_listed(paths, self._watched)} changed: restarting", FAINT)
                    return seen
                seen = now
        return seen

    def _wait_for_change(self, seen: Snapshot) -> None:
        assert self._watched is not None
        while not self._signals:
            time.sleep(_FILE_CHECK_INTERVAL_S)
            if self._changed(seen, self._settled(seen)):
                return

    def _settled(self, seen: Snapshot) -> Snapshot:
        """Return the files; after a change, first wait until no more files change.

        Files that are written constantly are ignored from then on.
        """
        assert self._watched is not None
        now = snapshot(self._watched)
        if not self._changed(seen, now):
            return now
        writes: Counter[str] = Counter()
        give_up = time.monotonic() + _MAX_SETTLE_S
        while not self._signals and time.monotonic() < give_up:
            time.sleep(_SETTLE_S)
            later = snapshot(self._watched)
            moved, now = self._changed(now, later), later
            if not moved:
                return now
            writes.update(moved)
        constantly_written = sorted(path for path, count in writes.items() if count > _MAX_WRITES)
        if constantly_written and not self._signals:
            self._ignored.update(constantly_written)
            print_message(
                "no longer watched, because of constant changes: "
                f"{_listed(constantly_written, self._watched)}",
                FAINT,
            )
        return now

    def _changed(self, before: Snapshot, after: Snapshot) -> list[str]:
        return [path for path in changed(before, after) if path not in self._ignored]

    def _forward_signals(self, child: subprocess.Popen[bytes]) -> None:
        while self._forwarded < len(self._signals):
            child.send_signal(self._signals[self._forwarded])
            self._forwarded += 1

    def _end(self) -> None:
        """End the program, and kill it if it takes too long."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + _CLOSE_S
            while child.poll() is None and time.monotonic() < deadline:
                self._forward_signals(child)
                time.sleep(_POLL_INTERVAL_S)
        if child.poll() is None:
            child.kill()
        child.wait()
        self._notify_watcher(0)

    @contextmanager
    def _running_watcher(self) -> Iterator[None]:
        command = [sys.executable, "-I", parent_watch.__file__, str(_CLOSE_S)]
        # In its own session, so that it outlives the terminal.
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True
        ) as self._watcher:
            yield

    def _notify_watcher(self, pid: int) -> None:
        assert self._watcher is not None
        assert self._watcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed
            self._watcher.stdin.write(f"{pid}\n".encode())

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        # Ignored signals, as under nohup, stay ignored.
        signals = [
            each for each in _FORWARDED_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN
        ]
        before = {each: signal.signal(each, self._on_signal) for each in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signals.append(_FORWARDED_SIGNALS[signal.Signals(number)])


def _exit_code(code: int) -> int:
    """Return the exit code that shells report, also after a signal."""
    return 128 - code if code < 0 else code


def _listed(paths: Sequence[str], folder: Path) -> str:
    shown = [str(Path(path).relative_to(folder)) for path in paths[:3]]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
