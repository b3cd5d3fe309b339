"""Writes docs/images/architecture.svg, the drawing in ARCHITECTURE.md, from the text below.

python docs/generators/generate_architecture.py            # write the drawing
python docs/generators/generate_architecture.py --check    # exit code 1 if it is out of date
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from generated import write_or_check

DRAWING = Path(__file__).parents[1] / "images" / "architecture.svg"

# Style, left, top, width, height (in pixels), title, and the line below the title.
_BOXES = """
frame  16  16 236 348 | Driver                | holds the Spark session
part   32  74 204  56 | Topology              | topology/
part   32 142 204  56 | Supervision           | application/, spark/
part   32 210 204  56 | Queries, HTTP         | query/, server/
part   32 278 204  56 | DataFrame stages      | dataframes/, lake/
frame 330  16 316 348 | Executor              | one worker process per stream thread
part  346  74 284  46 | Group member          | kafka/membership/, on its own thread
part  346 132 284  46 | Loop                  | runtime/loop/: poll, process, commit
task  346 190 136  46 | Task 0_0              | runtime/task/
task  494 190 136  46 | Task 0_1              | active or standby
store 346 248 284  46 | Stores                | state/: cache, overlay, RocksDB
part  346 306 284  46 | Kafka clients         | kafka/clients/
frame 724  16 220 348 | Kafka                 | brokers
part  740  74 188  46 | Group coordinator     | assignments, offsets
part  740 132 188  46 | Input topics          |
part  740 190 188  46 | Output topics         |
part  740 248 188  46 | Repartition topics    | between sub-topologies
part  740 306 188  46 | Changelogs            | of the stores
"""

# Start x y, end x y, one direction or both, label.
_ARROWS = """
236 170 330 170 both | control
630  97 740  97 both | heartbeats
740 155 630 155 one  | records
630 328 740 328 one  | results, changes
"""

_STYLE = """
.ground{fill:#ffffff}.frame{fill:#f6f8fa;stroke:#57606a}.part{fill:#ddf4ff;stroke:#0969da}
.task{fill:#dafbe1;stroke:#1a7f37}.store{fill:#fff8c5;stroke:#9a6700}
text{fill:#1f2328}.note{font-size:11px;fill:#57606a}.title{font-weight:600}
.arrow{stroke:#57606a;stroke-width:1.6;marker-end:url(#tip)}.both{marker-start:url(#tip)}
@media (prefers-color-scheme:dark){.ground{fill:#0d1117}.frame{fill:#161b22;stroke:#8b949e}
.part{fill:#0c2d6b;stroke:#58a6ff}.task{fill:#033a16;stroke:#3fb950}
.store{fill:#3b2300;stroke:#d29922}text{fill:#e6edf3}.note{fill:#8b949e}.arrow{stroke:#8b949e}}
"""

_START = f"""<svg xmlns="http://www.w3.org/2000/svg" \
viewBox="0 0 960 380" width="960" height="380" \
font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif" font-size="14">
<style>{_STYLE}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="#57606a"/></marker></defs>
<rect class="ground" width="960" height="380" rx="8"/>
"""


def _box(line: str) -> str:
    shape, title, note = (part.strip() for part in line.split("|"))
    style, left, top, width, height = shape.split()
    x, y = int(left) + 12, int(top) + 22
    rect = f'<rect class="{style}" x="{left}" y="{top}" width="{width}" height="{height}" rx="5"/>'
    text = f'<text class="title" x="{x}" y="{y}">{escape(title)}</text>'
    return f'{rect}{text}<text class="note" x="{x}" y="{y + 16}">{escape(note)}</text>\n'


def _arrow(line: str) -> str:
    shape, label = (part.strip() for part in line.split("|"))
    x1, y1, x2, y2, ends = shape.split()
    style = "arrow both" if ends == "both" else "arrow"
    middle, above = (int(x1) + int(x2)) // 2, min(int(y1), int(y2)) - 6
    path = f'<line class="{style}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
    place = f'x="{middle}" y="{above}" text-anchor="middle"'
    return f'{path}<text class="note" {place}>{escape(label)}</text>\n'


def drawing() -> str:
    """Return the drawing as SVG."""
    boxes = [_box(line) for line in _BOXES.strip().splitlines()]
    arrows = [_arrow(line) for line in _ARROWS.strip().splitlines()]
    return "".join([_START, *boxes, *arrows, "</svg>\n"])


if __name__ == "__main__":
    raise SystemExit(write_or_check(__doc__, [(DRAWING, drawing())], sys.argv[1:]))
