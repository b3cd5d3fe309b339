"""Recordings of commands as animated SVGs."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from record_demo import OutputChunk, animated_svg, frames

OUTPUT = [
    OutputChunk(1, b"Starting ...\r\n"),
    OutputChunk(20, b"".join(b"product %d\r\n" % number for number in range(9))),
    OutputChunk(23, b"done\r\n"),
]


def test_the_recording_starts_with_a_filled_screen() -> None:
    """Output before that is only visible as part of later frames."""
    first, *rest = frames(OUTPUT)
    assert sum(bool(line) for line in first.drawn) == 10
    assert len(rest) == 1
    assert [len(frames(OUTPUT[:1])), len(frames([]))] == [1, 0]


def test_the_first_frame_is_visible_immediately() -> None:
    """All its lines are, and the last line of the output is not."""
    picture = animated_svg(frames(OUTPUT))
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    texts = {each.get("id"): "".join(each.itertext()) for each in root.iter(f"{space}text")}
    visible = {
        texts[found[1]]
        for found in re.finditer(
            r"@keyframes (t\d+)\{0%\{visibility:hidden\}0\.00%\{visibility:visible\}", picture
        )
    }
    assert visible == {"Starting ...", *(f"product {number}" for number in range(9))}
    assert set(texts.values()) - visible == {"done"}
