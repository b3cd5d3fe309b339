"""The uncaught exception handler, and the policy that applies its response."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from millstream.application.stream_threads import StreamThreads
from millstream.clock import Clock, Deadline
from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    ConfigError,
    ShutdownRequestedError,
    SparkError,
    StreamsError,
    as_streams_error,
)
from millstream.kafka.settings.librdkafka_settings import client_setting
from millstream.log_format import short_name
from millstream.runtime.states.client_states import ClientStateTracker

logger = logging.getLogger("millstream")

_FAILED_CLOSE_TIMEOUT_MS = 30_000
#: Added to `max.poll.interval.ms`, within which all members rejoin. If the group has not announced
#: a requested shutdown by then, only this instance closes.
_SHUTDOWN_MARGIN_MS = 30_000


class StreamsUncaughtExceptionHandlerResponse(enum.Enum):
    """The response to an error that ended a stream thread (KIP-671).

    Example:
        >>> streams = KafkaStreams(topology, config)
        >>> streams.set_uncaught_exception_handler(
        ...     lambda error: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
        ... )
    """

    #: Start a replacement, with a backoff of 250 ms that doubles up to 30 s. A thread that has run
    #: for a minute resets the backoff.
    REPLACE_THREAD = "replace_thread"
    #: Close this application instance; its state becomes ERROR. The default.
    SHUTDOWN_CLIENT = "shutdown_client"
    #: Close all instances of the application, including Java instances: the group's leader notifies
    #: them. The state of each becomes ERROR.
    SHUTDOWN_APPLICATION = "shutdown_application"


ExceptionHandler = Callable[[StreamsError], StreamsUncaughtExceptionHandlerResponse]


def default_handler(error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
    """Return `SHUTDOWN_CLIENT`. Used if the user has not set a handler."""
    return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT


def call_handler(
    handler: ExceptionHandler, failure: StreamsError
) -> StreamsUncaughtExceptionHandlerResponse:
    """Call a handler and return its response.

    If the handler raises or returns any other object, the response is `SHUTDOWN_CLIENT`.
    """
    try:
        response: object = handler(failure)
    except Exception:
        logger.exception("the uncaught exception handler failed: closing this application instance")
        return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT
    if isinstance(response, StreamsUncaughtExceptionHandlerResponse):
        return response
    logger.error(
        "the uncaught exception handler returned %r, which is not a "
        "StreamsUncaughtExceptionHandlerResponse: closing this application instance",
        response,
    )
    return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT


_Response = StreamsUncaughtExceptionHandlerResponse


class FailurePolicy:
    """Calls the user's uncaught exception handler and applies its response.

    Not thread-safe.

    Args:
        shut_down_client: closes this instance because of an error, in the background.
        has_group: whether the application has a consumer group, which other instances may have
            joined.

    Attributes:
        error: the first error that stopped a thread or the application.
        failed_threads: the number of threads that ended with an error.
        raises_error: whether `run` raises the error. If so, the error is logged at INFO.
        failed_close_timeout_ms: the time after which a failed thread is killed if it has not
            closed.
        on_decision: called with the failed thread, the error, and the response.
    """

    def __init__(
        self,
        config: StreamsConfig,
        states: ClientStateTracker,
        stream_threads: StreamThreads,
        clock: Clock,
        shut_down_client: Callable[[StreamsError], None],
        *,
        has_group: bool,
    ) -> None:
        self.exception_handler: ExceptionHandler = default_handler
        self.error: StreamsError | None = None
        self.failed_threads = 0
        self.raises_error = False
        self.failed_close_timeout_ms = _FAILED_CLOSE_TIMEOUT_MS
        self.on_decision: Callable[[str | None, StreamsError, str], None] = lambda *_: None
        self._config = config
        self._states = states
        self._stream_threads = stream_threads
        self._clock = clock
        self._shut_down_client = shut_down_client
        self._has_group = has_group
        #: Threads whose error was handled. A thread is removed from the set when its replacement
        #: runs.
        self._handled: set[str] = set()
        self._to_replace: set[str] = set()
        #: The cause of a requested application shutdown, and the deadline for its announcement.
        self._shutdown_cause: StreamsError | None = None
        self._shutdown_deadline: Deadline | None = None

    def thread_running(self, thread: str) -> None:
        """Handle the start of a thread, which may be a replacement."""
        self._to_replace.discard(thread)
        self._handled.discard(thread)

    def is_handled(self, thread: str) -> bool:
        return thread in self._handled

    def should_replace(self, thread: str) -> bool:
        return thread in self._to_replace

    def thread_ended(self, thread: str) -> None:
        """Handle the end of a thread that is not replaced."""
        self._to_replace.discard(thread)

    def listener_failed(self, failure: StreamsError) -> None:
        """Handle an error of a user's listener, which does not end a thread."""
        if self._states.is_live:
            self._apply_response(call_handler(self.exception_handler, failure), None, failure)

    def thread_failed(self, thread: str, error: BaseException) -> None:
        """Handle the error of a thread that is ending or has ended."""
        self._handled.add(thread)
        self.failed_threads += 1
        failure = as_streams_error(thread, error)
        if not self._states.is_live:
            if isinstance(failure, ShutdownRequestedError):
                return
            logger.warning("%s ended with an error while closing: %s", short_name(thread), failure)
            self.on_decision(thread, failure, "the application instance is already closing")
            self.error = self.error or failure
            return
        if isinstance(failure, ShutdownRequestedError):
            # Follows Kafka Streams: the handler is not called for a shutdown request from another
            # instance.
            logger.log(self._error_level, "%s", failure)
            self.on_decision(thread, failure, "another instance requested a shutdown")
            self._shut_down_client(self._shutdown_cause or failure)
            return
        logger.log(self._error_level, "%s ended with an error: %s", short_name(thread), failure)
        if self._shutdown_cause is not None:
            # The failed thread may not have sent the shutdown request, so its replacement sends it.
            response = _Response.SHUTDOWN_APPLICATION
        else:
            response = call_handler(self.exception_handler, failure)
        self._apply_response(response, thread, failure)

    def _apply_response(
        self,
        response: StreamsUncaughtExceptionHandlerResponse,
        thread: str | None,
        failure: StreamsError,
    ) -> None:
        self.on_decision(thread, failure, response.name)
        # A replacement cannot fix a wrong setting or a problem with Spark.
        is_permanent = isinstance(failure, SparkError | ConfigError)
        if response is _Response.SHUTDOWN_APPLICATION and self._has_group:
            self._shut_down_application(thread, failure, is_permanent=is_permanent)
        elif response is not _Response.REPLACE_THREAD or is_permanent:
            self._shut_down_client(failure)
        elif thread is not None:
            self._replace_after_close(thread)

    def _replace_after_close(self, thread: str) -> None:
        self._to_replace.add(thread)
        # User code that runs while the thread closes may block forever.
        self._stream_threads.close_failed(thread, self.failed_close_timeout_ms)

    def _shut_down_application(
        self, thread: str | None, failure: StreamsError, *, is_permanent: bool
    ) -> None:
        """Request the shutdown of all instances through the group.

        A running thread sends the request; if there is none, a replacement for the failed thread
        does. As in Kafka Streams, this instance closes when the group announces the shutdown.
        """
        self.error = self.error or failure
        others = self._stream_threads.live - (0 if thread is None else 1)
        if is_permanent and others < 1:
            logger.error("no thread is left to request a shutdown of the other instances")
            self._shut_down_client(failure)
            return
        if self._shutdown_cause is None:
            self._shutdown_cause = failure
            timeout_ms = int(client_setting(self._config, "main_consumer", "max.poll.interval.ms"))
            self._shutdown_deadline = Deadline(self._clock, timeout_ms + _SHUTDOWN_MARGIN_MS)
            source = "a listener" if thread is None else short_name(thread)
            logger.error("requesting a shutdown of all instances: %s failed: %s", source, failure)
            self._stream_threads.request_shutdown(f"{source} failed: {failure}")
        if thread is not None and not is_permanent:
            self._replace_after_close(thread)

    def tick(self) -> None:
        """Close this instance if the group did not announce a requested shutdown in time."""
        deadline, cause = self._shutdown_deadline, self._shutdown_cause
        if deadline is not None and cause is not None and deadline.passed and self._states.is_live:
            self._shutdown_deadline = None
            logger.error(
                "the group did not announce the requested shutdown in time, so only this instance "
                "closes. Check whether other instances are still running"
            )
            self._shut_down_client(cause)

    @property
    def _error_level(self) -> int:
        return logging.INFO if self.raises_error else logging.ERROR
