"""Following a file of properties while a subscription runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from millstream.errors import ConfigError, IllegalStateError
from millstream.subscriptions.properties.file import PropertiesFile, content, merged, parsed, values
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.properties.readings import Problem, Reading

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 5.0


class PropertiesWatch:
    """The properties in force: those of a file over those given in code.

    The file's content is compared, not its times: it is small, and no time tells all changes on all
    file systems. A new content counts when two looks one after the other have found it.

    May be used by several threads. `on_change` is called by the one that found the change, never
    by two at a time; what it raises is logged.

    Args:
        file: what is followed.
        given: the properties given in code.
        on_change: gets the new properties whenever a value has changed.
        misfits: tells which properties cannot be as they are, by name, and why.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong.

    Example:
        >>> import pathlib, tempfile
        >>> from millstream.subscriptions.properties.watch import PropertiesWatch
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name, "properties.toml")
        >>> _ = path.write_text("partition_concurrency = 4")
        >>> watch = PropertiesWatch(PropertiesFile(path), Properties(), print)
        >>> watch.properties
        Properties(partition_concurrency=4)
        >>> _ = path.write_text("partition.concurrency = 8")
        >>> watch.check(), watch.check()
        Properties(partition_concurrency=8)
        (False, True)
        >>> folder.cleanup()
    """

    def __init__(
        self,
        file: PropertiesFile,
        given: Properties,
        on_change: Callable[[Properties], None],
        misfits: Callable[[Properties], Mapping[str, str]] = lambda _: {},
    ) -> None:
        data = content(file)
        self._file = file
        self._given = given
        self._on_change = on_change
        self._misfits = misfits
        self._lock = threading.RLock()
        self._seen: bytes | str = data
        self._taken: bytes | str = data
        self._overlay = values(file, data, given)
        self._current = merged(given, self._overlay)
        self._told: frozenset[str] = frozenset()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def properties(self) -> Properties:
        """The properties in force."""
        return self._current

    def check(self) -> bool:
        """Look at the file; true if that has changed a property."""
        with self._lock:
            seen, before = self._look(), self._seen
            self._seen = seen
            if seen != before or seen == self._taken:
                return False
            self._taken = seen
            try:
                reading = self._parse(seen)
            except ConfigError as error:
                self._tell([f"{error.message} All stays as it was."])
                return False
            overlay = dict(self._kept(reading))
            self._tell([*map(_told, reading.problems), *self._hold_fixed(overlay)])
            return self._apply(self._given, overlay)

    def give(self, given: Properties) -> bool:
        """Other properties are given in code; true if that changes one that the file leaves alone.

        Raises:
            ConfigError: it would change what cannot change while running, or does not fit; nothing
                has changed.
        """
        with self._lock:
            for why in self._refused(merged(given, self._overlay)).values():
                raise ConfigError(why)
            return self._apply(given, self._overlay)

    def start(self) -> None:
        """Look at the file again and again, on a thread of its own.

        Raises:
            IllegalStateError: it was started before.
        """
        if self._thread is not None:
            raise IllegalStateError("A watch of properties can be started only once.")
        self._thread = threading.Thread(
            target=self._run, name=f"properties-{self._file.path}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Look no more. Waits for a look that is under way, but no longer than 5 s."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._file.poll_interval.total_seconds()):
            try:
                self.check()
            except Exception:
                _log.exception("Looking at the properties file %s failed.", self._file.path)

    def _look(self) -> bytes | str:
        """What stands in the file, or why it cannot be read."""
        try:
            return content(self._file)
        except ConfigError as error:
            return error.message

    def _parse(self, seen: bytes | str) -> Reading:
        if isinstance(seen, str):
            raise ConfigError(seen)
        return parsed(self._file, seen, self._given)

    def _kept(self, reading: Reading) -> Iterator[tuple[str, Any]]:
        """The values of the file, and of those that are wrong the former ones."""
        yield from reading.values.items()
        for problem in reading.problems:
            if problem.name is not None and problem.name in self._overlay:
                yield problem.name, self._overlay[problem.name]

    def _hold_fixed(self, overlay: dict[str, Any]) -> Iterator[str]:
        """Put the values in force into the overlay where others cannot be."""
        for name, why in self._refused(merged(self._given, overlay)).items():
            overlay[name] = getattr(self._current, name)
            yield f"{why} {name} stays as it was."

    def _refused(self, new: Properties) -> dict[str, str]:
        """Which properties cannot become what they are there, and why."""
        fixed = {
            name: f"{name} cannot change while the subscription runs."
            for name in new.refused_after(self._current)
        }
        return {**self._misfits(new), **fixed}

    def _tell(self, problems: list[str]) -> None:
        """Log what is wrong, unless it was so before."""
        for problem in problems:
            if problem not in self._told:
                _log.warning("%s: %s", self._file.path, problem)
        self._told = frozenset(problems)

    def _apply(self, given: Properties, overlay: dict[str, Any]) -> bool:
        before = self._current
        self._given, self._overlay = given, overlay
        self._current = merged(given, overlay)
        changed = self._current.differing(before)
        if not changed:
            return False
        _log.info("%s: now %s", self._file.path, _shown(self._current, changed))
        try:
            self._on_change(self._current)
        except Exception:
            _log.exception("Changing %s failed.", ", ".join(sorted(changed)))
        return True


def _told(problem: Problem) -> str:
    return f"{problem.why} {'It is left out.' if problem.name is None else 'It stays as it was.'}"


def _shown(properties: Properties, names: Iterable[str]) -> str:
    """Names with values; of lists only how long they are, since keys do not belong into logs."""
    values = ((name, getattr(properties, name)) for name in sorted(names))
    return ", ".join(
        f"{name} ({len(value)})" if isinstance(value, tuple) else f"{name}={value!r}"
        for name, value in values
    )
