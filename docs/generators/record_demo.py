"""Records a command in a pseudo-terminal as an animated SVG for the README.

    python docs/generators/record_demo.py docs/images/demo.svg -- make demo
    python docs/generators/record_demo.py demo.svg --seconds 30 -- millstream demo

The output of the command is recorded with the time of each piece. CSS in the SVG shows each line of
the screen for as long as it was visible, so no player is needed. Pauses are cut to two seconds. The
animation starts when the screen is mostly filled, because readers see its first frame first.
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
#: The size of a character in pixels.
WIDE, HIGH = 8.4, 17
MARGIN = 14
LONGEST_PAUSE_S, SHORTEST_FRAME_S, LAST_FRAME_S = 2.0, 0.5, 6.0
#: The content of the first frame, as a fraction of the content of the fullest frame.
MIN_FILLED = 0.75
GROUND, TEXT = "#1e1e2e", "#cdd6f4"
COLORS = {
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
class OutputChunk:
    """A piece of the command's output, with the time when it was read."""

    at_s: float
    data: bytes


@dataclass(slots=True)
class Frame:
    """A state of the screen, as a line of SVG for each row, and its duration."""

    drawn: list[str]
    duration_s: float


def record(command: Sequence[str], timeout_s: float) -> list[OutputChunk]:
    """Run a command in a pseudo-terminal until it ends or times out.

    Args:
        command: the program and its arguments.
        timeout_s: the time after which the command gets SIGINT; ten seconds later, it is killed.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
        try:
            os.execvp(command[0], list(command))
        finally:
            # If exec fails, the child must not continue as a second copy of this program.
            os._exit(127)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    found: list[OutputChunk] = []
    began = time.monotonic()
    interrupted = False
    while True:
        now_s = time.monotonic() - began
        if now_s > timeout_s and not interrupted:
            os.kill(child, signal.SIGINT)
            interrupted = True
        if now_s > timeout_s + 10:
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
        found.append(OutputChunk(time.monotonic() - began, data))
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    if os.waitstatus_to_exitcode(status) == 127:
        raise SystemExit(f"{command[0]} could not be started")
    return found


def frames(output: Sequence[OutputChunk]) -> list[Frame]:
    """Return the successive states of the screen, except those that were visible too briefly."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    found: list[Frame] = []
    shown_s = 0.0
    for index, chunk in enumerate(output):
        stream.feed(chunk.data)
        last = index + 1 == len(output)
        until_s = chunk.at_s + LAST_FRAME_S if last else output[index + 1].at_s
        if not last and until_s - shown_s < SHORTEST_FRAME_S:
            continue
        duration_s = LAST_FRAME_S if last else min(until_s - chunk.at_s, LONGEST_PAUSE_S)
        drawn = _screen_lines(screen)
        if found and found[-1].drawn == drawn:
            found[-1].duration_s += duration_s
        else:
            found.append(Frame(drawn, max(duration_s, SHORTEST_FRAME_S)))
        shown_s = until_s
    return found[_first_filled(found) :]


def _first_filled(shown: Sequence[Frame]) -> int:
    """Return the index of the first frame that is mostly filled."""
    filled = [sum(map(len, frame.drawn)) for frame in shown]
    enough = max(filled, default=0) * MIN_FILLED
    return next((index for index, length in enumerate(filled) if length >= enough), 0)


def _screen_lines(screen: pyte.Screen) -> list[str]:
    rows = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(LINES)]
    return [_spans(row) for row in rows]


def _spans(characters: Sequence[pyte.screens.Char]) -> str:
    text = []
    column = 0
    while column < len(characters):
        first = characters[column]
        end = column
        while end < len(characters) and _style(characters[end]) == _style(first):
            end += 1
        run = "".join(each.data for each in characters[column:end])
        # Each word has its own position and length, so that columns align in every font.
        for word in re.finditer(r"\S+(?: \S+)*", run):
            x = f"{MARGIN + (column + word.start()) * WIDE:.1f}"
            length = f'textLength="{len(word[0]) * WIDE:.1f}" lengthAdjust="spacingAndGlyphs"'
            text.append(f'<tspan x="{x}" {length}{_style(first)}>{escape(word[0])}</tspan>')
        column = end
    return "".join(text)


def _style(character: pyte.screens.Char) -> str:
    color = character.fg
    fill = COLORS.get(color.removeprefix("bright"), f"#{color}" if len(color) == 6 else TEXT)
    if color == "default":
        fill = TEXT
    weight = ' font-weight="bold"' if character.bold else ""
    return f' fill="{fill}"{weight}'


_REDUCED_MOTION = "@media(prefers-reduced-motion:reduce){text{animation:none!important}}"


def animated_svg(shown: Sequence[Frame]) -> str:
    """Return the frames as an SVG whose animation repeats."""
    all_s = sum(frame.duration_s for frame in shown)
    width, height = COLUMNS * WIDE + 2 * MARGIN, LINES * HIGH + 2 * MARGIN
    styles, lines = [], []
    for number, ((row, spans), times) in enumerate(_times(shown).items()):
        y = MARGIN + (row + 1) * HIGH - 4
        # Without animation, the last frame is visible.
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
        f"<style>{''.join(styles)}{_REDUCED_MOTION}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>{"".join(lines)}</svg>\n'
    )


def _times(shown: Sequence[Frame]) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """Return the intervals in which each line is visible, by row and content."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    at_s = 0.0
    for frame in shown:
        end_s = at_s + frame.duration_s
        for place in enumerate(frame.drawn):
            times = found.setdefault(place, [])
            if times and times[-1][1] == at_s:
                times[-1] = (times[-1][0], end_s)
            elif place[1]:
                times.append((at_s, end_s))
        at_s = end_s
    return {place: times for place, times in found.items() if times}


def main() -> int:
    parser = argparse.ArgumentParser(description="Records a command as an animated SVG.")
    parser.add_argument("picture", type=Path, help="the file to write")
    parser.add_argument("--seconds", type=float, default=120, help="the timeout (default: 120)")
    parser.add_argument("command", nargs="+", help="the command, after --")
    options = parser.parse_args()
    output = record(options.command, options.seconds)
    if not output:
        print("the command wrote no output", file=sys.stderr)
        return 1
    options.picture.write_text(animated_svg(frames(output)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
