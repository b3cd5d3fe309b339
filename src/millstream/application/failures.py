"""What the user's handler of uncaught exceptions is asked, and what it may answer."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from millstream.errors import StreamsError

logger = logging.getLogger("millstream")


class StreamsUncaughtExceptionHandlerResponse(enum.Enum):
    """What to do when a stream thread has died of an error (KIP-671).

    Example:
        >>> streams = KafkaStreams(topology, config)
        >>> streams.set_uncaught_exception_handler(
        ...     lambda error: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
        ... )
    """

    #: Start another thread in its place, as often as it takes: after 250 ms, then twice that, up to
    #: 30 s, until one has run for a minute.
    REPLACE_THREAD = "replace_thread"
    #: Close this application instance; its state becomes ERROR. The default.
    SHUTDOWN_CLIENT = "shutdown_client"
    #: Close all instances of the application, those in Java included: the group's leader tells
    #: them. The state of each becomes ERROR.
    SHUTDOWN_APPLICATION = "shutdown_application"


ExceptionHandler = Callable[[StreamsError], StreamsUncaughtExceptionHandlerResponse]


def shut_down(error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
    """The handler of those who set none."""
    return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT


def answer_to(
    handler: ExceptionHandler, failure: StreamsError
) -> StreamsUncaughtExceptionHandlerResponse:
    """What the handler says; one that fails itself, or says nothing known, closes the instance."""
    try:
        answer: object = handler(failure)
    except Exception:
        logger.exception("the uncaught exception handler failed; the application is closed")
        return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT
    if isinstance(answer, StreamsUncaughtExceptionHandlerResponse):
        return answer
    logger.error(
        "the uncaught exception handler answered %r, which is no "
        "StreamsUncaughtExceptionHandlerResponse; the application is closed",
        answer,
    )
    return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT
