"""A topology's description as an SVG drawing, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, NamedTuple

from millstream.topology.physical.flow_graph import Flow, FlowPart, Place, flow_parts

# Sizes in pixels.
_CHARACTER: Final = 7.3
_HEIGHT: Final = 30
_GAP: Final = 24
_ROW_GAP: Final = 34
_PADDING: Final = 16
_TITLE: Final = 24
#: Longer names are cut in the middle.
_MAX_CHARACTERS: Final = 44

# A notebook may insert the drawing into its own page, so every selector has the class of the
# drawing, and the ground is opaque.
_STYLE: Final = """
.millstream-topology{font:12px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.millstream-topology .ground{fill:#fff}.millstream-topology text{fill:#1f2328}
.millstream-topology .part{fill:#f6f8fa;stroke:#d0d7de}
.millstream-topology .node{fill:#fff;stroke:#57606a}
.millstream-topology .topic{fill:#ddf4ff;stroke:#0969da}
.millstream-topology .store{fill:#fff8c5;stroke:#9a6700}
.millstream-topology .flow{fill:none;stroke:#57606a;stroke-width:1.2}
.millstream-topology .tip{fill:#57606a}
.millstream-topology .title{font-weight:600;paint-order:stroke;stroke:#f6f8fa;stroke-width:6px}
@media (prefers-color-scheme:dark){.millstream-topology .ground{fill:#0d1117}
.millstream-topology text{fill:#e6edf3}.millstream-topology .part{fill:#161b22;stroke:#30363d}
.millstream-topology .node{fill:#0d1117;stroke:#8b949e}
.millstream-topology .topic{fill:#0c2d6b;stroke:#58a6ff}
.millstream-topology .store{fill:#3b2300;stroke:#d29922}
.millstream-topology .flow{stroke:#8b949e}.millstream-topology .tip{fill:#8b949e}
.millstream-topology .title{stroke:#161b22}}
"""


def drawing(description: Mapping[str, Any]) -> str:
    """Return the SVG of a description from `TopologyDescription.to_dict`.

    Records flow from top to bottom. Topics are between the sub-topologies that write and read them.
    """
    return _Layout(flow_parts(description)).svg()


class _Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float = _HEIGHT

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    def moved(self, x: float, y: float) -> _Box:
        return self._replace(x=self.x + x, y=self.y + y)


@dataclass(frozen=True, slots=True)
class _DrawnPart:
    """A part with the boxes of its nodes and stores, relative to its own corner."""

    part: FlowPart
    boxes: Mapping[Place, _Box]
    width: float
    height: float


class _Layout:
    """Positions of all boxes: alternating rows of topics and of parts, from the top."""

    def __init__(self, parts: Sequence[FlowPart]) -> None:
        self._boxes: dict[Place, _Box] = {}
        self._parts: list[tuple[FlowPart, _Box]] = []
        self._flows = [flow for part in parts for node in part.nodes for flow in node.flows]
        ranks = _part_ranks(parts)
        rows = _topic_rows(parts, ranks)
        drawn = [_draw_part(part) for part in parts]
        y = float(_PADDING)
        y_of_topics: list[float] = []
        for row in range(max(ranks.values(), default=-1) + 2):
            y_of_topics.append(y)
            if row in rows.values():
                y += _HEIGHT + _ROW_GAP
            here = [each for each in drawn if ranks[each.part.id] == row]
            self._place_parts(here, y)
            if here:
                y += max(each.height for each in here) + _ROW_GAP
        for row, top in enumerate(y_of_topics):
            self._place_topics([topic for topic, its in rows.items() if its == row], top)

    def _place_parts(self, parts: Iterable[_DrawnPart], y: float) -> None:
        x = float(_PADDING)
        for each in parts:
            self._parts.append((each.part, _Box(x, y, each.width, each.height)))
            for place, box in each.boxes.items():
                self._boxes[place] = box.moved(x, y)
            x += each.width + _GAP

    def _place_topics(self, topics: Iterable[Place], y: float) -> None:
        """Place topics near their nodes, in the order of the nodes and without overlap."""
        wanted = sorted((self._mean_middle(topic), topic) for topic in topics)
        left = float(_PADDING)
        for middle, topic in wanted:
            width = _width(topic)
            x = max(left, middle - width / 2)
            self._boxes[topic] = _Box(x, y, width)
            left = x + width + _GAP

    def _mean_middle(self, topic: Place) -> float:
        ends = (end for flow in self._flows if topic in flow for end in flow if end != topic)
        middles = [self._boxes[end].middle for end in ends]
        return sum(middles) / len(middles)

    def svg(self) -> str:
        boxes = [*self._boxes.values(), *(box for _, box in self._parts)]
        width = max((box.x + box.width for box in boxes), default=160) + _PADDING
        height = max((box.y + box.height for box in boxes), default=20) + _PADDING
        return "".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="millstream-topology" role="img" '
                f'aria-label="Topology" viewBox="0 0 {width:.0f} {height:.0f}" '
                f'width="{width:.0f}" height="{height:.0f}" style="max-width:100%;height:auto">'
                f"<style>{_STYLE}</style>"
                '<defs><marker id="millstream-tip" viewBox="0 0 8 8" refX="7" refY="4" '
                'markerWidth="7" markerHeight="7" orient="auto"><path class="tip" '
                'd="M0 0 8 4 0 8z"/></marker></defs>'
                f'<rect class="ground" width="{width:.0f}" height="{height:.0f}" rx="8"/>\n',
                *(_part_svg(box) for _, box in self._parts),
                *(self._flow_svg(flow) for flow in self._flows),
                # Titles cover the flows behind them.
                *(_title_svg(part, box) for part, box in self._parts),
                *(_box_svg(place, box) for place, box in self._boxes.items()),
                "" if boxes else f'<text x="{_PADDING}" y="22">no nodes</text>\n',
                "</svg>\n",
            ]
        )

    def _flow_svg(self, flow: Flow) -> str:
        start, end = self._boxes[flow.source], self._boxes[flow.target]
        if flow.target.kind == "store":
            x, y = start.x + start.width, start.y + start.height / 2
            to_x, to_y = end.x, end.y + end.height / 2
            bend = (to_x - x) / 2
            curve = f"C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f}"
            style = 'stroke-dasharray="3 3"'
        else:
            x, y = start.middle, start.y + start.height
            to_x, to_y = end.middle, end.y
            bend = max(abs(to_y - y) / 2, _ROW_GAP / 2)
            curve = f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f}"
            style = 'marker-end="url(#millstream-tip)"'
        path = f"M{x:.1f} {y:.1f}{curve} {to_x:.1f} {to_y:.1f}"
        return f'<path class="flow" {style} d="{path}"/>\n'


def _part_ranks(parts: Sequence[FlowPart]) -> dict[int, int]:
    """Return the row of each part, below the parts that write its topics."""
    writers: dict[Place, set[int]] = {}
    readers: dict[int, set[Place]] = {part.id: set() for part in parts}
    for part, flow in _flows_of(parts):
        if flow.target.kind == "topic":
            writers.setdefault(flow.target, set()).add(part.id)
        elif flow.source.kind == "topic":
            readers[part.id].add(flow.source)
    before = {
        part.id: set().union(*(writers.get(topic, set()) for topic in readers[part.id])) - {part.id}
        for part in parts
    }
    ranks: dict[int, int] = {}
    while len(ranks) < len(parts):
        waiting = [part.id for part in parts if part.id not in ranks]
        ready = [number for number in waiting if before[number] <= ranks.keys()]
        # A cycle of topics has no first part: start with any.
        for number in ready or waiting[:1]:
            above = (ranks[other] + 1 for other in before[number] if other in ranks)
            ranks[number] = max(above, default=0)
    return ranks


def _topic_rows(parts: Sequence[FlowPart], ranks: Mapping[int, int]) -> dict[Place, int]:
    """Return the row of each topic, below its writers or above its readers."""
    below: dict[Place, int] = {}
    above: dict[Place, int] = {}
    for part, flow in _flows_of(parts):
        rank = ranks[part.id]
        if flow.target.kind == "topic":
            below[flow.target] = max(below.get(flow.target, 0), rank + 1)
        elif flow.source.kind == "topic":
            above[flow.source] = min(above.get(flow.source, rank), rank)
    return {**above, **below}


def _flows_of(parts: Iterable[FlowPart]) -> Iterator[tuple[FlowPart, Flow]]:
    for part in parts:
        for node in part.nodes:
            yield from ((part, flow) for flow in node.flows)


def _draw_part(part: FlowPart) -> _DrawnPart:
    """Place the nodes of a part in rows, and its stores beside them."""
    rows = _node_rows(part)
    widths = [sum(map(_width, row)) + _GAP * (len(row) - 1) for row in rows]
    title = len(part.title) * _CHARACTER
    inner = max([title, *widths])
    boxes: dict[Place, _Box] = {}
    for number, (row, width) in enumerate(zip(rows, widths, strict=True)):
        x = _PADDING + (inner - width) / 2
        for place in row:
            boxes[place] = _Box(x, _TITLE + _PADDING + number * (_HEIGHT + _ROW_GAP), _width(place))
            x += boxes[place].width + _GAP
    right, bottom = _PADDING + inner, 0.0
    for store in part.stores():
        users = (node.place for node in part.nodes if Flow(node.place, store) in node.flows)
        y = max(bottom, min(boxes[user].y for user in users))
        boxes[store] = _Box(_PADDING + inner + 2 * _GAP, y, _width(store))
        right, bottom = max(right, boxes[store].x + boxes[store].width), y + _HEIGHT + _GAP / 2
    height = max(box.y + box.height for box in boxes.values()) + _PADDING
    return _DrawnPart(part, boxes, right + _PADDING, height)


def _node_rows(part: FlowPart) -> list[list[Place]]:
    # Nodes precede their successors in a description.
    rank = {node.place: 0 for node in part.nodes}
    parents: dict[Place, list[Place]] = {node.place: [] for node in part.nodes}
    for node in part.nodes:
        for successor in node.successors():
            rank[successor] = max(rank[successor], rank[node.place] + 1)
            parents[successor].append(node.place)
    rows: list[list[Place]] = [[] for _ in range(max(rank.values()) + 1)]
    for place, number in rank.items():
        rows[number].append(place)
    order: dict[Place, float] = {}
    for row in rows:
        wanted = {
            place: sum(order[parent] for parent in parents[place]) / max(1, len(parents[place]))
            for place in row
        }
        row.sort(key=lambda place, wanted=wanted: wanted[place])  # type: ignore[misc]
        order.update((place, (index + 0.5) / len(row)) for index, place in enumerate(row))
    return rows


def _width(place: Place) -> float:
    return len(_shortened(place.name)) * _CHARACTER + 2 * _PADDING


def _shortened(name: str) -> str:
    if len(name) <= _MAX_CHARACTERS:
        return name
    half = _MAX_CHARACTERS // 2
    return f"{name[:half]}…{name[1 - half :]}"


def _part_svg(box: _Box) -> str:
    return (
        f'<rect class="part" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="8"/>\n'
    )


def _title_svg(part: FlowPart, box: _Box) -> str:
    x, y = box.x + 12, box.y + 20
    return f'<text class="title" x="{x:.1f}" y="{y:.1f}">{escape(part.title)}</text>\n'


def _box_svg(place: Place, box: _Box) -> str:
    style = place.kind if place.kind in ("topic", "store") else "node"
    radius = _HEIGHT / 2 if style == "topic" else 5
    return (
        f'<g><title>{escape(place.name)}</title><rect class="{style}" x="{box.x:.1f}" '
        f'y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius:.0f}"/>'
        f'<text x="{box.middle:.1f}" y="{box.y + 19:.1f}" text-anchor="middle">'
        f"{escape(_shortened(place.name))}</text></g>\n"
    )
