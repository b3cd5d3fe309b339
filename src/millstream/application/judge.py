"""What follows from the error of a stream thread: another thread, or the end of the instance, or
of all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.application.crew import Crew
from millstream.application.failures import (
    ExceptionHandler,
    StreamsUncaughtExceptionHandlerResponse,
    answer_to,
    shut_down,
)
from millstream.clock import Clock, Deadline
from millstream.config import StreamsConfig
from millstream.errors import (
    ConfigError,
    ShutdownRequestedError,
    SparkError,
    StreamsError,
    as_streams_error,
)
from millstream.kafka.settings.clients import client_setting
from millstream.runtime.client_states import ClientStates
from millstream.spark.worker.worker_logging import short_name

logger = logging.getLogger("millstream")

_FAILED_CLOSE_TIMEOUT_MS = 30_000
#: How long the group may take to tell that the application shuts down, beyond
#: `max.poll.interval.ms`, in which all members join.
_SHUTDOWN_MARGIN_MS = 30_000

_Response = StreamsUncaughtExceptionHandlerResponse


def _ignore(thread: str | None, error: StreamsError, answer: str) -> None:
    """Nobody remembers."""


class Judge:
    """Asks the user's handler about errors, and does what it says. Called by one thread at a time.

    Args:
        config: settings.
        states: whether the application still lives.
        crew: the threads.
        clock: for deadlines.
        give_up: closes this instance because of an error, in the background.
        has_group: whether there is a group that others may be in.

    Attributes:
        exception_handler: the user's.
        error: what made a thread or the application stop, if anything did.
        raises_error: whether that error is going to be raised by `run`, which tells it, too.
        failed_close_timeout_ms: how long a thread that has failed may take to close, before it is
            killed and replaced.
    """

    def __init__(
        self,
        config: StreamsConfig,
        states: ClientStates,
        crew: Crew,
        clock: Clock,
        give_up: Callable[[StreamsError], None],
        *,
        has_group: bool,
    ) -> None:
        self.exception_handler: ExceptionHandler = shut_down
        self.error: StreamsError | None = None
        #: How many threads have died of an error.
        self.failed_threads = 0
        self.raises_error = False
        self.failed_close_timeout_ms = _FAILED_CLOSE_TIMEOUT_MS
        self._config = config
        self._states = states
        self._crew = crew
        self._clock = clock
        self._give_up = give_up
        #: Told which thread has failed, the error, and what is done about it.
        self.on_verdict: Callable[[str | None, StreamsError, str], None] = _ignore
        self._has_group = has_group
        #: Threads whose error is dealt with, until one of the name runs again.
        self._judged: set[str] = set()
        self._to_replace: set[str] = set()
        #: Why all of the application is to shut down, and by when the group must have told us to.
        self._shutdown_cause: StreamsError | None = None
        self._shutdown_by: Deadline | None = None

    def runs(self, thread: str) -> None:
        """A thread of the name runs, again."""
        self._to_replace.discard(thread)
        self._judged.discard(thread)

    def knows_of(self, thread: str) -> bool:
        """Whether the error of a thread is dealt with."""
        return thread in self._judged

    def wants_another(self, thread: str) -> bool:
        """Whether another thread is to come in the place of one that has ended."""
        return thread in self._to_replace

    def forget(self, thread: str) -> None:
        """A thread has ended for good."""
        self._to_replace.discard(thread)

    def listener_failed(self, failure: StreamsError) -> None:
        """A listener of the user's has failed, of which no thread has died."""
        if self._states.is_live:
            self._obey(answer_to(self.exception_handler, failure), None, failure)

    def died(self, thread: str, error: BaseException) -> None:
        """A thread is ending or has ended by an error: decide what follows."""
        self._judged.add(thread)
        self.failed_threads += 1
        failure = as_streams_error(thread, error)
        if not self._states.is_live:
            if isinstance(failure, ShutdownRequestedError):
                return
            logger.warning("%s ended with an error while closing: %s", short_name(thread), failure)
            self.on_verdict(thread, failure, "the application closes anyway")
            self.error = self.error or failure
            return
        if isinstance(failure, ShutdownRequestedError):
            # Follows Kafka Streams: what another instance has decided no handler is asked about.
            logger.log(self._error_level, "%s", failure)
            self.on_verdict(thread, failure, "another instance asked all to shut down")
            self._give_up(self._shutdown_cause or failure)
            return
        # A script raises the error, which tells the same.
        logger.log(self._error_level, "%s died: %s", short_name(thread), failure)
        if self._shutdown_cause is not None:
            # It was to tell the group that all shut down: the next one will.
            answer = _Response.SHUTDOWN_APPLICATION
        else:
            answer = answer_to(self.exception_handler, failure)
        self._obey(answer, thread, failure)

    def _obey(
        self,
        answer: StreamsUncaughtExceptionHandlerResponse,
        thread: str | None,
        failure: StreamsError,
    ) -> None:
        """Do what the handler says.

        Args:
            answer: what it says.
            thread: which thread has died of it; None if all go on.
            failure: the error.
        """
        self.on_verdict(thread, failure, answer.name)
        # Neither does another thread change settings, or what Spark cannot run.
        hopeless = isinstance(failure, SparkError | ConfigError)
        if answer is _Response.SHUTDOWN_APPLICATION and self._has_group:
            self._shut_down_all(thread, failure, hopeless=hopeless)
        elif answer is not _Response.REPLACE_THREAD or hopeless:
            self._give_up(failure)
        elif thread is not None:
            self._await_end_of(thread)

    def _await_end_of(self, thread: str) -> None:
        """Replace a thread when it has ended."""
        self._to_replace.add(thread)
        # What of the user's code it still has to close may block for ever.
        self._crew.expect_end(thread, self.failed_close_timeout_ms)

    def _shut_down_all(self, thread: str | None, failure: StreamsError, *, hopeless: bool) -> None:
        """Let the threads that live ask the group; without one, another in the dead one's place.

        Follows Kafka Streams: this instance closes when the group has told all of them.
        """
        self.error = self.error or failure
        others = self._crew.live - (0 if thread is None else 1)
        if hopeless and others < 1:
            logger.error("no thread is left that could tell the other instances to shut down")
            self._give_up(failure)
            return
        if self._shutdown_cause is None:
            self._shutdown_cause = failure
            most_ms = int(client_setting(self._config, "main_consumer", "max.poll.interval.ms"))
            self._shutdown_by = Deadline(self._clock, most_ms + _SHUTDOWN_MARGIN_MS)
            who = "a listener" if thread is None else short_name(thread)
            logger.error("all instances are to shut down, since %s failed: %s", who, failure)
            self._crew.ask_for_shutdown(f"{who} failed: {failure}")
        if thread is not None and not hopeless:
            self._await_end_of(thread)

    def look(self) -> None:
        """Called a few times a second."""
        by, cause = self._shutdown_by, self._shutdown_cause
        if by is not None and cause is not None and by.passed and self._states.is_live:
            self._shutdown_by = None
            logger.error(
                "the group has not told in time that all instances shut down, so this one closes "
                "by itself; see whether the others run"
            )
            self._give_up(cause)

    @property
    def _error_level(self) -> int:
        return logging.INFO if self.raises_error else logging.ERROR
