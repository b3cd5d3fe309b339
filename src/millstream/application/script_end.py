"""Closes applications that still run when the script that started them has come to its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from millstream.runtime.client_states import ClientStates
from millstream.runtime.states import ClientState

logger = logging.getLogger("millstream")

_NAME: Final = "millstream-script-end"
_LOOK_S: Final = 0.5
_FINAL: Final = frozenset({ClientState.NOT_RUNNING, ClientState.ERROR})
#: How long the stream threads may take to close at the end of a script.
CLOSE: Final = timedelta(seconds=30)


def close_with_script(
    application: object, states: ClientStates, close: Callable[[timedelta], object]
) -> None:
    """Close an application in order at the end of the script, unless it is closed before.

    A script ends when its main thread and all other non-daemon threads have ended. Without this the
    stream threads would be killed with the driver, or on a cluster work on without it for a while.
    Signals that end the process at once are not noticed here.

    Args:
        application: for the log, as a string.
        states: the state of the application.
        close: closes it; takes how long it may take.
    """
    # No daemon: Python waits for it before it shuts down, when nothing can be closed any more.
    threading.Thread(
        target=_await_end, args=(application, states, close), name=_NAME, daemon=False
    ).start()


def _await_end(
    application: object, states: ClientStates, close: Callable[[timedelta], object]
) -> None:
    while not states.wait_for(_FINAL, _LOOK_S):
        if _script_runs():
            continue
        # What has begun to close is left to whoever closes it, or has given it up.
        if states.is_live:
            logger.warning(
                "The script has ended, but %s was not closed: it is closed now. Call run() instead "
                "of start(), or wait for what you want and call close() at the end.",
                application,
            )
            close(CLOSE)
        return


def _script_runs() -> bool:
    return any(
        thread.is_alive() and not thread.daemon and thread.name != _NAME
        for thread in threading.enumerate()
    )
