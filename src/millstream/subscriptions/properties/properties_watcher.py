"""The watcher of a properties file, which updates a running subscription."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from millstream.errors import ConfigError, IllegalStateError
from millstream.subscriptions.properties.properties_file import (
    PropertiesFile,
    merge_properties,
    parse_content,
    read_content,
    valid_values,
)
from millstream.subscriptions.properties.subscription_properties import (
    ParsedProperties,
    Properties,
    PropertyProblem,
)

_log = logging.getLogger(__name__)

_STOP_TIMEOUT_S: Final = 5.0


class PropertiesWatcher:
    """Tracks the effective properties: those of a file override those given in code.

    Compares the content of the file, which is small, instead of its modification time, which is
    unreliable on some file systems. New content is applied after two consecutive reads have
    returned it.

    Thread-safe. `on_change` is called by the thread that detects the change, never concurrently;
    its exceptions are logged.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """

    def __init__(
        self,
        file: PropertiesFile,
        given: Properties,
        on_change: Callable[[Properties], None],
        find_conflicts: Callable[[Properties], Mapping[str, str]] = lambda _: {},
    ) -> None:
        data = read_content(file)
        self._file = file
        self._given = given
        self._on_change = on_change
        self._find_conflicts = find_conflicts
        self._lock = threading.RLock()
        self._last_seen: bytes | str = data
        self._applied: bytes | str = data
        self._overlay = valid_values(file, data, given)
        #: The effective properties.
        self.properties = merge_properties(given, self._overlay)
        self._logged: frozenset[str] = frozenset()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self) -> bool:
        """Read the file. Returns whether a property has changed."""
        with self._lock:
            seen, before = self._read(), self._last_seen
            self._last_seen = seen
            if seen != before or seen == self._applied:
                return False
            self._applied = seen
            try:
                if isinstance(seen, str):
                    raise ConfigError(seen)
                reading = parse_content(self._file, seen, self._given)
            except ConfigError as error:
                self._log_problems([f"{error.message} No property was changed."])
                return False
            overlay = dict(self._values_to_apply(reading))
            self._log_problems(
                [*map(_problem_message, reading.problems), *self._keep_fixed(overlay)]
            )
            return self._apply(self._given, overlay)

    def set_given(self, given: Properties) -> bool:
        """Replace the properties given in code.

        Returns whether an effective property has changed.

        Raises:
            ConfigError: a property is invalid or cannot change while the subscription runs. Nothing
                changes in this case.
        """
        with self._lock:
            for why in self._rejected_changes(merge_properties(given, self._overlay)).values():
                raise ConfigError(why)
            return self._apply(given, self._overlay)

    def start(self) -> None:
        if self._thread is not None:
            raise IllegalStateError("A properties watcher can be started only once.")
        self._thread = threading.Thread(
            target=self._run, name=f"properties-{self._file.path}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Waits up to 5 s for a read in progress."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._file.poll_interval.total_seconds()):
            try:
                self.check()
            except Exception:
                _log.exception("Reading the properties file %s failed.", self._file.path)

    def _read(self) -> bytes | str:
        """Return the content of the file, or the error message if it cannot be read."""
        try:
            return read_content(self._file)
        except ConfigError as error:
            return error.message

    def _values_to_apply(self, reading: ParsedProperties) -> Iterator[tuple[str, Any]]:
        """Yield the valid values of the file, and the previous values of invalid ones."""
        yield from reading.values.items()
        for problem in reading.problems:
            if problem.name is not None and problem.name in self._overlay:
                yield problem.name, self._overlay[problem.name]

    def _keep_fixed(self, overlay: dict[str, Any]) -> Iterator[str]:
        """Keep the effective values of properties that cannot change.

        Yields the problems.
        """
        for name, why in self._rejected_changes(merge_properties(self._given, overlay)).items():
            overlay[name] = getattr(self.properties, name)
            yield f"{why} {name} was not changed."

    def _rejected_changes(self, new: Properties) -> dict[str, str]:
        """Return the properties that cannot have their new values, with an explanation."""
        fixed = {
            name: f"{name} cannot change while the subscription runs."
            for name in new.refused_after(self.properties)
        }
        return {**self._find_conflicts(new), **fixed}

    def _log_problems(self, problems: list[str]) -> None:
        for problem in problems:
            if problem not in self._logged:
                _log.warning("%s: %s", self._file.path, problem)
        self._logged = frozenset(problems)

    def _apply(self, given: Properties, overlay: dict[str, Any]) -> bool:
        before = self.properties
        self._given, self._overlay = given, overlay
        self.properties = merge_properties(given, overlay)
        changed = self.properties.differing(before)
        if not changed:
            return False
        _log.info("%s: now %s", self._file.path, _shown(self.properties, changed))
        try:
            self._on_change(self.properties)
        except Exception:
            _log.exception("Changing %s failed.", ", ".join(sorted(changed)))
        return True


def _problem_message(problem: PropertyProblem) -> str:
    return f"{problem.why} {'It is ignored.' if problem.name is None else 'It was not changed.'}"


def _shown(properties: Properties, names: Iterable[str]) -> str:
    """Format names and values.

    Lists are shown by length, because keys must not appear in logs.
    """
    values = ((name, getattr(properties, name)) for name in sorted(names))
    return ", ".join(
        f"{name} ({len(value)})" if isinstance(value, tuple) else f"{name}={value!r}"
        for name, value in values
    )
