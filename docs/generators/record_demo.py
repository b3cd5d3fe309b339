"""Records a command in a terminal of its own, as a moving picture for README: an SVG.

    python docs/generators/record_demo.py docs/images/demo.svg -- make demo
    python docs/generators/record_demo.py demo.svg --seconds 30 -- millstream demo

The command runs for real, in a pseudo-terminal; what it writes is kept with its times. Each line of
the screen is shown by CSS within the SVG for as long as it stood, so that no player is needed.
Pauses longer than two seconds are cut to two.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pyte

COLUMNS, LINES = 100, 26
#: Of a character, in pixels.
WIDE, HIGH = 8.4, 17
MARGIN = 14
LONGEST_PAUSE_S, SHORTEST_FRAME_S, LAST_FRAME_S = 2.0, 0.5, 6.0
GROUND, TEXT = "#1e1e2e", "#cdd6f4"
COLOURS = {
    "black": "#45475a",
    "red": "#f38ba8",
    "green": "#a6e3a1",
    "brown": "#f9e2af",
    "blue": "#89b4fa",
    "magenta": "#cba6f7",
    "cyan": "#94e2d5",
    "white": "#bac2de",
}


@dataclass(frozen=True, slots=True)
class Written:
    """What the command wrote, and when."""

    at_s: float
    data: bytes


@dataclass(slots=True)
class Frame:
    """A state of the screen, line by line as SVG, and for how long it stands."""

    drawn: list[str]
    lasts_s: float


def record(command: Sequence[str], at_most_s: float) -> list[Written]:
    """Runs a command in a pseudo-terminal until it ends or its time is over.

    Args:
        command: the program and its arguments.
        at_most_s: then it is interrupted as by Ctrl-C, and has ten seconds to end.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
        try:
            os.execvp(command[0], list(command))
        finally:
            # What has not been replaced must not go on as a second copy of this program.
            os._exit(127)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    found: list[Written] = []
    began = time.monotonic()
    interrupted = False
    while True:
        now_s = time.monotonic() - began
        if now_s > at_most_s and not interrupted:
            os.kill(child, signal.SIGINT)
            interrupted = True
        if now_s > at_most_s + 10:
            os.kill(child, signal.SIGKILL)
            break
        ready, _, _ = select.select([terminal], [], [], 0.1)
        if not ready:
            continue
        try:
            data = os.read(terminal, 65_536)
        except OSError:
            # The other end is closed: the command has ended.
            break
        if not data:
            break
        found.append(Written(time.monotonic() - began, data))
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    if os.waitstatus_to_exitcode(status) == 127:
        raise SystemExit(f"{command[0]} cannot be started")
    return found


def frames(written: Sequence[Written]) -> list[Frame]:
    """The states of the screen, in their order; those that stood too short are left out."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    found: list[Frame] = []
    shown_s = 0.0
    for index, one in enumerate(written):
        stream.feed(one.data)
        last = index + 1 == len(written)
        until_s = one.at_s + LAST_FRAME_S if last else written[index + 1].at_s
        if not last and until_s - shown_s < SHORTEST_FRAME_S:
            continue
        stands_s = LAST_FRAME_S if last else min(until_s - one.at_s, LONGEST_PAUSE_S)
        drawn = _drawn(screen)
        if found and found[-1].drawn == drawn:
            found[-1].lasts_s += stands_s
        else:
            found.append(Frame(drawn, max(stands_s, SHORTEST_FRAME_S)))
        shown_s = until_s
    return found


def _drawn(screen: pyte.Screen) -> list[str]:
    rows = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(LINES)]
    return [_spans(row) for row in rows]


def _spans(characters: Sequence[pyte.screens.Char]) -> str:
    text = []
    column = 0
    while column < len(characters):
        first = characters[column]
        end = column
        while end < len(characters) and _look(characters[end]) == _look(first):
            end += 1
        run = "".join(each.data for each in characters[column:end])
        # Each word has its own place and length, so that no font moves the columns.
        for word in re.finditer(r"\S+(?: \S+)*", run):
            x = f"{MARGIN + (column + word.start()) * WIDE:.1f}"
            length = f'textLength="{len(word[0]) * WIDE:.1f}" lengthAdjust="spacingAndGlyphs"'
            text.append(f'<tspan x="{x}" {length}{_look(first)}>{escape(word[0])}</tspan>')
        column = end
    return "".join(text)


def _look(character: pyte.screens.Char) -> str:
    colour = character.fg
    fill = COLOURS.get(colour.removeprefix("bright"), f"#{colour}" if len(colour) == 6 else TEXT)
    if colour == "default":
        fill = TEXT
    weight = ' font-weight="bold"' if character.bold else ""
    return f' fill="{fill}"{weight}'


def picture(shown: Sequence[Frame]) -> str:
    """The frames as one SVG that goes round."""
    all_s = sum(frame.lasts_s for frame in shown)
    width, height = COLUMNS * WIDE + 2 * MARGIN, LINES * HIGH + 2 * MARGIN
    styles, lines = [], []
    for number, ((row, spans), times) in enumerate(_times(shown).items()):
        y = MARGIN + (row + 1) * HIGH - 4
        # What moves nothing shows the last frame.
        at_rest = "visible" if times[-1][1] > all_s - SHORTEST_FRAME_S else "hidden"
        lines.append(f'<text id="t{number}" y="{y}" visibility="{at_rest}">{spans}</text>')
        steps = "".join(
            f"{100 * begin / all_s:.2f}%{{visibility:visible}}"
            f"{100 * end / all_s:.2f}%{{visibility:hidden}}"
            for begin, end in times
        )
        styles.append(
            f"@keyframes t{number}{{0%{{visibility:hidden}}{steps}}}"
            f"#t{number}{{animation:t{number} {all_s:.1f}s steps(1,end) infinite}}"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-size="14" xml:space="preserve" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace">'
        f"<style>{''.join(styles)}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>{"".join(lines)}</svg>\n'
    )


def _times(shown: Sequence[Frame]) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """From when until when each line is to be seen, by its row and what it shows."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    at_s = 0.0
    for frame in shown:
        end_s = at_s + frame.lasts_s
        for place in enumerate(frame.drawn):
            times = found.setdefault(place, [])
            if times and times[-1][1] == at_s:
                times[-1] = (times[-1][0], end_s)
            elif place[1]:
                times.append((at_s, end_s))
        at_s = end_s
    return {place: times for place, times in found.items() if times}


def main() -> int:
    parser = argparse.ArgumentParser(description="Records a command as a moving SVG.")
    parser.add_argument("picture", type=Path, help="the file to write")
    parser.add_argument("--seconds", type=float, default=120, help="at most (default: 120)")
    parser.add_argument("command", nargs="+", help="what to run, behind --")
    options = parser.parse_args()
    written = record(options.command, options.seconds)
    if not written:
        print("the command has written nothing", file=sys.stderr)
        return 1
    options.picture.write_text(picture(frames(written)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
