"""Follows a page step by step: saves its files, runs its commands, checks their output.

A comment before a block is an instruction:

    <!-- file: NAME -->                                save the block under this name
    <!-- run -->                                       run it with bash; it must succeed
    <!-- run: until it says "TEXT" -->                 run it again until its output has the text
    <!-- run: in the background, until "TEXT" -->      run it in its own terminal; wait for the text
    <!-- expect -->                                    the last command's output has these lines
    <!-- stop: COMMAND -->                             send Ctrl-C to the newest such command in the
                                                       background; its output has these lines
    <!-- kill: COMMAND -->                             run the block; it ends that command

Blocks without a comment are not executed.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT

from support.machine.scripts import Program
from support.waiting import wait_for

BLOCK = re.compile(
    r"^<!-- (?P<do>file|run|expect|stop|kill)(?:: (?P<what>[^\n]*?))? -->\n"
    r"```\w*\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
QUOTED = re.compile(r'"([^"]*)"')
TIMEOUT_S = 120.0


class StepFailedError(AssertionError):
    """A step did not have the result that the page describes."""


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of the page.

    Attributes:
        do: the word in the comment.
        what: the rest of the comment.
    """

    do: str
    what: str
    text: str
    line: int


def steps(page: Path) -> Iterator[Step]:
    """The steps of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Step(found["do"], found["what"] or "", found["text"], line)


@dataclass(slots=True)
class Reader:
    """Follows the instructions of a page.

    Attributes:
        before: run before each command: the state of a reader's shell, such as an activated
            environment.
        last_output: the output of the last completed command.
        running: the commands in the background, with their programs.
    """

    page: Path
    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    before: str = ""
    last_output: str = ""
    running: list[tuple[str, Program]] = field(default_factory=list)

    def follow(self, leave_out: tuple[int, ...] = ()) -> None:
        """Execute all steps, then end the background commands.

        Args:
            leave_out: numbers of steps, from 0.

        Raises:
            StepFailedError: a result differs from the page.
        """
        with ExitStack() as ended:
            for number, step in enumerate(steps(self.page)):
                if number not in leave_out:
                    self._do(step, ended)

    def _do(self, step: Step, ended: ExitStack) -> None:
        if step.do == "file":
            (self.folder / step.what).write_text(step.text, encoding="utf-8")
        elif step.do == "expect":
            self._find(step, self.last_output)
        elif step.do == "stop":
            program = self._newest(step)
            program.signal(SIGINT)
            program.wait_ended(TIMEOUT_S)
            self._find(step, _output(program))
        elif step.do == "kill":
            program = self._newest(step)
            self._run(step)
            program.wait_ended(TIMEOUT_S)
        elif step.what.startswith("in the background"):
            self._start(step, ended)
        elif step.what:
            self._run_until(step)
        else:
            self._run(step)

    def _run(self, step: Step, *, may_fail: bool = False) -> None:
        completed = subprocess.run(
            ["bash", "-c", f"set -e\n{self.before}\n{step.text}"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S * 4,
        )
        self.last_output = completed.stdout + completed.stderr
        code = completed.returncode
        if code and not may_fail and step.do != "kill":
            raise StepFailedError(
                f"{self._at(step)} failed with exit code {code}:\n{self.last_output}"
            )

    def _run_until(self, step: Step) -> None:
        (expected,) = QUOTED.findall(step.what)

        def has_expected() -> bool:
            self._run(step, may_fail=True)
            return expected in self.last_output

        wait_for(
            has_expected,
            TIMEOUT_S,
            lambda: f"{self._at(step)}: {expected!r} is in the output: {self.last_output}",
        )

    def _start(self, step: Step, ended: ExitStack) -> None:
        (expected,) = QUOTED.findall(step.what)
        command = step.text.strip()
        program = ended.enter_context(
            Program(
                *("bash", "-c", f"{self.before}\nexec env {command}"),
                home=self.folder,
                environment=self.environment,
                clean_environment=True,
            )
        )
        program.end_input()
        ended.callback(_interrupt, program)
        self.running.append((command, program))

        def has_expected() -> bool:
            if not program.is_running:
                raise StepFailedError(f"{self._at(step)} has ended:\n{_output(program)}")
            return expected in _output(program)

        wait_for(has_expected, TIMEOUT_S, f"{self._at(step)}: {expected!r} is in the output")

    def _newest(self, step: Step) -> Program:
        for command, program in reversed(self.running):
            if command == step.what and program.is_running:
                return program
        raise StepFailedError(f"{self._at(step)}: {step.what!r} is not running")

    def _find(self, step: Step, output: str) -> None:
        for line in step.text.splitlines():
            if line.strip() not in output:
                raise StepFailedError(f"{self._at(step)}: {line!r} is not in:\n{output}")

    def _at(self, step: Step) -> str:
        return f"{self.page.name}, line {step.line}"


def _output(program: Program) -> str:
    return "\n".join([*program.lines, program.errors])


def _interrupt(program: Program) -> None:
    """Send Ctrl-C; a program that does not end is killed at the end of its context."""
    if program.is_running:
        program.signal(SIGINT)
        with suppress(subprocess.TimeoutExpired):
            program.wait_ended(60)
