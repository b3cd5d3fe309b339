"""`millstream run` as a program of its own."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.machine.scripts import Program, is_alive
from support.waiting import wait_for

MILLSTREAM = str(Path(sys.executable).with_name("millstream"))

_SCRIPT = """
import os, signal, sys, time
from neighbour import VERSION

def end(number, _):
    print("told", signal.Signals(number).name, flush=True)
    sys.exit(5)

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    print("pid", os.getpid(), flush=True)
    print("version", VERSION, *sys.argv[1:], flush=True)
    while True:
        time.sleep(0.05)
"""

_MASTER = """
import signal
from millstream.spark.sessions.session import session_at_hand

if __name__ == "__main__":
    heeded = lambda number, frame: None
    signal.signal(signal.SIGINT, heeded)
    context = session_at_hand().sparkContext
    print(context.master, context.appName, signal.getsignal(signal.SIGINT) is heeded)
    context.stop()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("VERSION = 1\n")
    file = tmp_path / "app.py"
    file.write_text(_SCRIPT)
    return file


def test_a_script_takes_the_place_of_the_command(script: Path) -> None:
    """Arguments, signals and the exit code are the script's own."""
    with Program(MILLSTREAM, "run", script, "--fast", "-n", "3") as program:
        assert program.wait_for_line("version") == "1 --fast -n 3"
        program.signal(signal.SIGTERM)
        assert program.wait_ended(30) == 5
        assert program.lines[-1] == "told SIGTERM"


def test_a_master_is_where_the_threads_run(tmp_path: Path) -> None:
    """`--spark` is what spark-submit's `--master` is: the program asks for a session, and has that
    one; whatever else Spark shall be started with stays, and so does who heeds Ctrl-C."""
    program = tmp_path / "app.py"
    program.write_text(_MASTER)
    given = {"PYSPARK_SUBMIT_ARGS": "--conf spark.app.name='my shop' pyspark-shell"}
    with Program(MILLSTREAM, "run", program, "--spark", "local[3]", environment=given) as run:
        assert run.wait_ended(60) == 0, run.errors
        assert run.lines[-1] == "local[3] my shop True"


def test_a_change_starts_it_again_and_a_broken_file_does_not(script: Path) -> None:
    """Told to end in order each time; what is half-written is waited out."""
    neighbour = script.with_name("neighbour.py")
    with Program(MILLSTREAM, "run", "--watch", script, "one") as program:
        assert program.wait_for_line("version 1") == "one"
        neighbour.write_text("VERSION = (\n")
        wait_for(lambda: "what runs goes on" in program.errors, 30, "the mistake is told")
        assert program.lines[1:] == ["version 1 one"]
        neighbour.write_text("VERSION = 2\n")
        assert program.wait_for_line("version 2", 30) == "one"
        said = [line for line in program.lines if not line.startswith("pid")]
        assert said == ["version 1 one", "told SIGTERM", "version 2 one"]
        # A terminal's Ctrl-C reaches the program once, through the command.
        program.signal(signal.SIGINT)
        assert program.wait_ended(30) == 5
        assert program.lines[-1] == "told SIGINT"
        assert "Traceback" not in program.errors
        pids = [int(line.split()[1]) for line in program.lines if line.startswith("pid")]
        # Each in a group of its own, so that the command's group would not tell.
        assert len(pids) == 2
        assert not any(map(is_alive, pids))


@pytest.fixture
def heeded() -> Iterator[None]:
    """What is started hears what nohup, or a shell of its background, would have it ignore."""
    former = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGHUP, signal.SIGQUIT)}
    yield
    for each, handler in former.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("how", ["SIGHUP", "SIGQUIT", "SIGKILL"])
def test_the_program_ends_with_the_command(script: Path, how: str) -> None:
    """The terminal is closed, or the command killed: nothing goes on in the background."""
    with Program(MILLSTREAM, "run", "--watch", script) as program:
        pid = int(program.wait_for_line("pid"))
        program.wait_for_line("version 1")
        assert is_alive(pid)
        program.signal(signal.Signals[how])
        program.wait_for_line("told SIGTERM", 30)
        wait_for(lambda: not is_alive(pid), 30, "the program has ended")
        assert program.wait_ended(30) == (-signal.SIGKILL if how == "SIGKILL" else 5)


def test_ctrl_c_is_heard_while_files_change(script: Path) -> None:
    """A program writes its progress beside itself: neither started again for ever, nor deaf."""
    progress = script.with_name("progress.json")
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.wait(0.02):
            number += 1
            progress.write_text("x" * number)

    writing = threading.Thread(target=write)
    with Program(MILLSTREAM, "run", "--watch", script) as program:
        program.wait_for_line("version 1")
        writing.start()
        try:
            wait_for(lambda: "progress.json changes" in program.errors, 30, "it is told")
            script.with_name("neighbour.py").write_text("VERSION = 2\n")
            program.wait_for_line("version 2", 30)
            # At once, and also in the midst of looking whether files have settled.
            script.with_name("other.json").write_text("1")
            program.signal(signal.SIGINT)
            program.wait_for_line("told SIGINT", 10)
            assert program.wait_ended(10) == 5
        finally:
            done.set()
            writing.join()


def test_a_program_in_the_background_reads_nothing_from_the_terminal(tmp_path: Path) -> None:
    """It would be stopped for good, and deaf to signals: it finds an empty input instead."""
    file = tmp_path / "app.py"
    file.write_text(
        "import sys\nif __name__ == '__main__':\n    sys.exit(3 if sys.stdin.read() == '' else 4)\n"
    )
    # As soon as the command is a terminal's, so is what it starts.
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, MILLSTREAM, "run", "--watch", str(file)])
    said = bytearray()

    def has_ended() -> bool:
        if select.select([terminal], [], [], 0)[0]:
            said.extend(os.read(terminal, 4096))
        return b"exit code 3; waits for a change" in said

    try:
        wait_for(has_ended, 60, lambda: f"it has ended: {said!r}")
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    finally:
        os.close(terminal)


def test_a_program_that_has_failed_waits_for_its_repair(script: Path) -> None:
    """With --watch it is no end; without, the exit code is the program's."""
    neighbour = script.with_name("neighbour.py")
    neighbour.write_text("raise SystemExit(9)\n")
    with Program(MILLSTREAM, "run", script) as program:
        assert program.wait_ended(30) == 9
    with Program(MILLSTREAM, "run", "--watch", script) as program:
        wait_for(lambda: "exit code 9; waits for a change" in program.errors, 30, "it has failed")
        neighbour.write_text("VERSION = 3\n")
        program.wait_for_line("version 3", 30)
        program.signal(signal.SIGTERM)
        assert program.wait_ended(30) == 5
