"""What becomes of an application whose script ends without closing it."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A script with an application that has no threads. Closing it needs a thread of its own, as
#: stopping Spark does.
PRELUDE = """
import sys
import threading
import time
from millstream.application.script_end import close_with_script
from millstream.clock import SystemClock
from millstream.runtime.client_states import ClientStates
from millstream.runtime.states import ClientState

states = ClientStates("shop", SystemClock())
states.become(ClientState.REBALANCING, "started")

def close(timeout):
    stopping = threading.Thread(target=print, args=("closed",), kwargs={"flush": True})
    stopping.start()
    stopping.join()
    states.become(ClientState.PENDING_SHUTDOWN, "closing")
    states.become(ClientState.NOT_RUNNING, "closed")

close_with_script("shop", states, close)
"""


def ran(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("raise ValueError('no')", 1), ("sys.exit(4)", 4)]
)
def test_it_is_closed_when_the_script_ends(end: str, code: int) -> None:
    """Hunts stream threads that are killed, or work on, when their driver is gone."""
    result = ran(end)
    assert (result.stdout, result.returncode) == ("closed\n", code)
    assert "'shop' was not closed, and its script has ended" in result.stderr


def test_a_closed_application_is_left_alone() -> None:
    result = ran("close(None)")
    assert (result.stdout, result.returncode) == ("closed\n", 0)
    assert result.stderr == ""


def test_the_script_is_more_than_its_main_thread() -> None:
    """Hunts an application that is closed while threads of the script still use it."""
    result = ran(
        "def work():\n"
        "    time.sleep(1)\n"
        "    print('worked', flush=True)\n"
        "threading.Thread(target=work).start()\n"
    )
    assert result.stdout == "worked\nclosed\n"


def test_a_close_that_was_given_up_does_not_hold_the_script() -> None:
    """After the third signal run() ends at once, though the application is still closing."""
    result = ran("states.become(ClientState.PENDING_SHUTDOWN, 'closing')")
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)
