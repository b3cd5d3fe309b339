"""Faults in the control connection between driver and workers (`spark/connection`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_SERVER = "spark/connection/control_server.py"
_CHANNEL = "spark/connection/control.py"
_CONVERSATION = "spark/connection/conversation.py"
_TESTS = ("tests/unit/spark/test_control.py", "tests/unit/spark/test_frames.py")

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "a reconnect does not wait for the end of the link before it",
        _SERVER,
        *("previous is None or previous.wait_ended(_TAKEOVER_S)", "True"),
        tests=_TESTS,
    ),
    mutant(
        "a reconnect is taken for a registration",
        _SERVER,
        *("if current is not None and hello.epoch == current.hello.epoch:", "if False:"),
        tests=_TESTS,
    ),
    mutant(
        "an attempt that was replaced is admitted",
        _SERVER,
        *("if current is not None and hello.epoch < current.hello.epoch:", "if False:"),
        tests=_TESTS,
    ),
    mutant(
        "an attempt of an earlier submission is admitted",
        _SERVER,
        *("if hello.epoch.submission < seat.lowest_submission:", "if False:"),
        tests=_TESTS,
    ),
    mutant(
        "questions to an attempt that has ended are not answered",
        _SERVER,
        *(
            "                request.settle(ThreadUnavailableError(why))\n",
            "                pass\n",
        ),
        tests=_TESTS,
    ),
    mutant(
        "the worker waits ten times its grace period for the driver",
        _CHANNEL,
        *(
            "time.monotonic() + self._grace_s",
            "time.monotonic() + 10 * self._grace_s",
        ),
        tests=_TESTS,
    ),
    mutant(
        "a thread whose keeper has failed does not stop",
        _CHANNEL,
        *(
            '            self._give_up(f"keeping its connection failed',
            '            str(f"keeping its',
        ),
        tests=_TESTS,
    ),
    mutant(
        "what the other end has received is sent again after a reconnect",
        _CONVERSATION,
        *("while self._unsent and self._unsent[0].number <= received_there:", "while False:"),
        tests=_TESTS,
    ),
    mutant(
        "what was in flight when a connection broke is not sent again",
        _CONVERSATION,
        *("            self._unsent.extendleft(reversed(self._unacknowledged))\n", ""),
        tests=_TESTS,
    ),
    mutant(
        "messages that come twice are dealt with twice",
        _CONVERSATION,
        *("            if number > conversation.received:\n", "            if True:\n"),
        tests=_TESTS,
    ),
    mutant(
        "a full conversation drops messages that it has to refuse",
        _CONVERSATION,
        *("if self._drop_oldest and not self._ended:", "if not self._ended:"),
        tests=_TESTS,
    ),
)
