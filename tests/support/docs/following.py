"""Follows a page word for word, as a reader would: saves its files, runs its commands, looks.

    python -m support.docs.following docs/tutorial.md FOLDER

What is to be done with a block stands in a comment before it:

    <!-- file: NAME -->                                save it under that name
    <!-- run -->                                       run it with bash, which must succeed
    <!-- run: until it says "TEXT" -->                 again and again, until its output has that
    <!-- run: in the background, until "TEXT" -->      in a terminal of its own, until that is there
    <!-- expect -->                                    lines of it are in what the last command said
    <!-- stop: COMMAND -->                             Ctrl-C for the newest such command in the
                                                       background, whose output has the block's
                                                       lines
    <!-- kill: COMMAND -->                             run it; that command is gone then

Blocks without such a comment are for reading.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

BLOCK = re.compile(
    r"^<!-- (?P<do>file|run|expect|stop|kill)(?:: (?P<what>[^\n]*?))? -->\n"
    r"```\w*\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
QUOTED = re.compile(r'"([^"]*)"')
PATIENCE_S = 120.0
_LOOK_S = 0.2


class StepFailedError(AssertionError):
    """A step did not show what the page says."""


@dataclass(frozen=True, slots=True)
class Step:
    """What the page asks for.

    Attributes:
        do: the word in the comment.
        what: the rest of the comment.
        text: the block.
        line: where it is in the page.
    """

    do: str
    what: str
    text: str
    line: int


@dataclass(slots=True)
class Background:
    """A command in a terminal of its own."""

    command: str
    process: subprocess.Popen[bytes]
    output: Path
    log: IO[bytes]

    def said(self) -> str:
        """All that it has written so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")


def steps(page: Path) -> Iterator[Step]:
    """The steps of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Step(found["do"], found["what"] or "", found["text"], line)


@dataclass(slots=True)
class Reader:
    """Somebody who does what a page says.

    Args:
        page: the page.
        folder: where files are saved and commands run.
        environment: variables of the commands.
    """

    page: Path
    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    #: Said by the last command that has ended.
    said: str = ""
    running: list[Background] = field(default_factory=list)
    #: Run before each command: what a reader's shell remembers, such as an environment.
    before: str = ""

    def follow(self, leave_out: tuple[int, ...] = ()) -> None:
        """Do all of it, and end what is still in the background.

        Args:
            leave_out: numbers of steps, from 0.

        Raises:
            StepFailedError: something is not as the page says.
        """
        try:
            for number, step in enumerate(steps(self.page)):
                if number not in leave_out:
                    self._do(step)
        finally:
            for one in reversed(self.running):
                self._end(one)

    def _do(self, step: Step) -> None:
        if step.do == "file":
            (self.folder / step.what).write_text(step.text, encoding="utf-8")
        elif step.do == "expect":
            self._find(step, self.said)
        elif step.do == "stop":
            one = self._newest(step)
            one.process.send_signal(signal.SIGINT)
            self._wait(step, lambda: one.process.poll() is not None, "it ends")
            self._find(step, one.said())
        elif step.do == "kill":
            one = self._newest(step)
            self._run(step)
            self._wait(step, lambda: one.process.poll() is not None, "it is gone")
        elif step.what.startswith("in the background"):
            self._start(step)
        elif step.what:
            self._run_until(step)
        else:
            self._run(step)

    def _run(self, step: Step, *, may_fail: bool = False) -> None:
        script = f"set -e\n{self.before}\n{step.text}"
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 4,
        )
        self.said = ended.stdout + ended.stderr
        if ended.returncode and not may_fail and step.do != "kill":
            raise StepFailedError(f"{self._at(step)} fails with {ended.returncode}:\n{self.said}")

    def _run_until(self, step: Step) -> None:
        (wanted,) = QUOTED.findall(step.what)

        def says_so() -> bool:
            self._run(step, may_fail=True)
            return wanted in self.said

        self._wait(step, says_so, lambda: f"it says {wanted!r}; it said: {self.said}")

    def _start(self, step: Step) -> None:
        (wanted,) = QUOTED.findall(step.what)
        output = self.folder / f".said-{len(self.running)}"
        log = output.open("wb")
        process = subprocess.Popen(
            ["bash", "-c", f"{self.before}\nexec env {step.text.strip()}"],
            cwd=self.folder,
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        one = Background(step.text.strip(), process, output, log)
        self.running.append(one)

        def says_so() -> bool:
            if process.poll() is not None:
                raise StepFailedError(f"{self._at(step)} has ended:\n{one.said()}")
            return wanted in one.said()

        self._wait(step, says_so, f"it says {wanted!r}")

    def _newest(self, step: Step) -> Background:
        alive = [
            each
            for each in self.running
            if each.command == step.what and each.process.poll() is None
        ]
        if not alive:
            raise StepFailedError(f"{self._at(step)}: {step.what!r} does not run")
        return alive[-1]

    def _end(self, one: Background) -> None:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGINT)
            try:
                one.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(one.process.pid, signal.SIGKILL)
                one.process.wait()
        one.log.close()

    def _find(self, step: Step, said: str) -> None:
        for line in step.text.splitlines():
            if line.strip() not in said:
                raise StepFailedError(f"{self._at(step)}: {line!r} is not in:\n{said}")

    def _wait(
        self, step: Step, condition: Callable[[], bool], what: str | Callable[[], str]
    ) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                told = what if isinstance(what, str) else what()
                raise StepFailedError(f"{self._at(step)}: waited {PATIENCE_S} s until {told}")
            time.sleep(_LOOK_S)

    def _at(self, step: Step) -> str:
        return f"{self.page.name}, line {step.line}"


def main() -> int:
    page, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    reader = Reader(page, folder, before="[ ! -e .venv ] || . .venv/bin/activate")
    reader.follow()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
