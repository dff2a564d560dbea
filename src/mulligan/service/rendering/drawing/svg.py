"""A workflow as one self-contained SVG, for light and dark pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

from mulligan.core.model.text.formatting import INVISIBLE_CHARACTERS
from mulligan.core.model.workflow import Workflow
from mulligan.service.rendering.drawing.grouped_steps import choose_picture
from mulligan.service.rendering.drawing.layers import LABEL_HEIGHT, NODE_PADDING, SMALL_SIZE, TITLE_SIZE, Spot
from mulligan.service.rendering.drawing.layout import Curve, Label, Layout, compute_layout
from mulligan.service.rendering.drawing.palette import (
    ACTIONS,
    ALONE,
    EMBEDDED,
    ON_PAGE,
    STATUS_GLYPHS,
    embedded_style,
    style,
)
from mulligan.service.rendering.drawing.picture import Link, Node, Picture
from mulligan.service.rendering.drawing.text_width import truncate_to_width

_ROW_HEIGHT = 16.0
# How many steps of a stack the tooltip names.
_NAMES_MAX = 10
# XML 1.0 cannot represent some of these; the others deceive a reader.
_INVALID = re.compile(f"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f{INVISIBLE_CHARACTERS}]")


def draw_svg(workflow: Workflow, statuses: Mapping[str, str] | None = None, *, is_expanded: bool = False) -> str:
    """The workflow as SVG text, with steps coloured by `statuses`; similar steps are one card, unless `is_expanded`."""
    drawn = choose_picture(workflow, statuses, is_expanded=is_expanded)
    return _draw(drawn, _Surroundings(ALONE, ALONE, style(), has_background=True))


def draw_embedded_svg(workflow: Workflow, statuses: Mapping[str, str] | None = None, *, nodes_max: int) -> str:
    """The same for a notebook: without a background, in colours that suit its theme; "" if it has too many nodes."""
    drawn = choose_picture(workflow, statuses)
    if len(drawn.nodes) > nodes_max:
        return ""
    # The drawings of all cells share one page: an arrow must not take its tip from a drawing that is folded away.
    tips = f"{EMBEDDED}-{crc32(repr(drawn).encode('utf-8', 'replace')):08x}"
    return _draw(drawn, _Surroundings(EMBEDDED, tips, embedded_style()))


def draw_page_svg(
    workflow: Workflow,
    statuses: Mapping[str, str] | None = None,
    *,
    lines: Mapping[str, int] | None = None,
    nodes_max: int,
    is_expanded: bool = False,
) -> str:
    """The same for the dashboard: its style sheet has the colours. "" if it has too many nodes.

    Nodes have `data-step` and, with `lines` (step name -> line), `data-line`; lines have `data-from` and `data-to`.
    """
    drawn = choose_picture(workflow, statuses, is_expanded=is_expanded)
    if len(drawn.nodes) > nodes_max:
        return ""
    return _draw(drawn, _Surroundings(ON_PAGE, ON_PAGE, lines=lines or {}, names=_names(drawn)))


@dataclass(frozen=True, slots=True)
class RunMarks:
    """What the drawing of a run has besides: where nodes lead, by key, which arrows it took, which node is chosen."""

    hrefs: Mapping[str, str] = field(default_factory=dict)
    taken: frozenset[Link] = frozenset()
    chosen: str = ""


def draw_run_svg(drawn: Picture, marks: RunMarks) -> str:
    """A picture of a run for the dashboard, with links, and with the arrows that the run took."""
    return _draw(drawn, _Surroundings(ON_PAGE, ON_PAGE, names=_names(drawn), marks=marks))


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """Where a drawing stands: the class and the ids of its own, and what it has besides shapes."""

    scope: str
    # How the ids of the tips of its arrows begin.
    tips: str
    style: str = ""
    has_background: bool = False
    # Only on a page that has scripts: the line of each step in the file, and the names of the nodes by their keys.
    lines: Mapping[str, int] | None = None
    names: Mapping[str, str] | None = None
    # Only of a run on a page.
    marks: RunMarks | None = None

    def look(self, link: Link) -> str:
        """The class of an arrow that the run took."""
        return " taken" if self.marks is not None and link in self.marks.taken else ""

    def order(self, link: Link) -> int:
        """The light lines come first, so that the important ones are drawn above them."""
        return 2 if self.look(link) else link.kind != "leaf"


def _names(drawn: Picture) -> dict[str, str]:
    return {node.key: node.name or node.title for node in drawn.nodes}


def _draw(drawn: Picture, around: _Surroundings) -> str:
    return "\n".join(_lines(drawn, compute_layout(drawn), around)) + "\n"


def _lines(drawn: Picture, layout: Layout, around: _Surroundings) -> Iterator[str]:
    wide, high = layout.right - layout.left, layout.bottom - layout.top
    box = f"{layout.left:.1f} {layout.top:.1f} {wide:.1f} {high:.1f}"
    # What has links is no single image to somebody who hears it.
    kind = f'class="{around.scope}" role="img"' if around.marks is None else f'class="{around.scope} run" role="group"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {kind} width="{wide:.0f}" height="{high:.0f}" viewBox="{box}">'
    yield f"<title>{_text(drawn.name)}</title>"
    if around.style:
        yield f"<style>{around.style}</style>"
    yield f"<defs>{''.join(_marker(kind, around.tips) for kind in ('success', 'failure', 'loop', 'leaf'))}</defs>"
    if around.has_background:
        size = f'width="{wide:.1f}" height="{high:.1f}"'
        yield f'<rect class="page" x="{layout.left:.1f}" y="{layout.top:.1f}" {size} rx="8"/>'
    yield from (_curve(curve, around) for curve in sorted(layout.curves, key=lambda curve: around.order(curve.link)))
    yield from (_label(label, around) for label in layout.labels)
    yield from (_box(spot, spot.node, around) for spot in layout.boxes if spot.node)
    yield "</svg>"


def _text(text: str) -> str:
    return escape(_INVALID.sub("\ufffd", text))


def _class(link: Link) -> str:
    if link.kind == "failure":
        return "failure"
    return "loop" if link.is_loop else "leaf" if link.kind == "leaf" else "success"


def _marker(kind: str, tips: str) -> str:
    return (
        f'<marker id="{tips}-{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto-start-reverse">'
        f'<path class="tip {kind}" d="M0 1L10 5L0 9z"/></marker>'
    )


def _curve(curve: Curve, around: _Surroundings) -> str:
    kind, tips = _class(curve.link), around.tips
    end = f' marker-end="url(#{tips}-{kind})"' if curve.has_arrow else ""
    start = f' marker-start="url(#{tips}-{kind})"' if curve.link.then == "rerun" else ""
    ends = ""
    if around.names is not None:
        names = around.names
        ends = f' data-from="{_text(names[curve.link.source])}" data-to="{_text(names[curve.link.target])}"'
    return f'<path class="line {kind}{around.look(curve.link)}"{ends} d="{curve.path}"{start}{end}/>'


def _label(label: Label, around: _Surroundings) -> str:
    kind = _class(label.link) + around.look(label.link)
    left, top = label.x - label.width / 2, label.y - LABEL_HEIGHT / 2
    return (
        f'<rect class="behind" x="{left:.1f}" y="{top:.1f}" width="{label.width:.1f}" '
        f'height="{LABEL_HEIGHT:.0f}" rx="4"/>'
        f'<text class="label {kind}" x="{label.x:.1f}" y="{label.y + 4:.1f}">{_text(label.text)}</text>'
    )


def _box(spot: Spot, node: Node, around: _Surroundings) -> str:
    if node.shape == "group":
        circle = f'<circle class="group" cx="{spot.x:.1f}" cy="{spot.y:.1f}" r="5">'
        return f"{circle}<title>{_text(node.title)}</title></circle>"
    status = f" is-{node.status}" if node.status in STATUS_GLYPHS else ""
    kind = f"{node.shape} stack" if node.members else node.shape
    words = "".join(_text_rows(spot, node))
    line = (around.lines or {}).get(node.members[0] if node.members else node.title)
    at = f' data-line="{line}"' if line else ""
    marks = around.marks or RunMarks()
    chosen = " chosen" if node.key == marks.chosen else ""
    drawn = (
        f'<g class="node {kind}{status}{chosen}" data-step="{_text(node.name or node.title)}"{at}>'
        f"<title>{_hover(node)}</title>{_outline(spot, node)}{words}{_glyph(spot, node)}</g>"
    )
    href = marks.hrefs.get(node.key)
    return f'<a id="node-{node.key}" href="{_text(href)}">{drawn}</a>' if href else drawn


def _hover(node: Node) -> str:
    status = node.counts or node.status
    rows = (node.title, _list_names(node.members), node.details, node.when, status)
    return "\n".join(_text(row) for row in rows if row)


def _list_names(names: tuple[str, ...]) -> str:
    """The first names of a stack, and the last one."""
    return ", ".join(names) if len(names) <= _NAMES_MAX else ", ".join((*names[: _NAMES_MAX - 1], f"… {names[-1]}"))


def _outline(spot: Spot, node: Node) -> str:
    if node.shape == "map" or node.members:
        behind = _rect(spot, shift=6) + _rect(spot, shift=3)
        return behind + _front(spot, node)
    return _front(spot, node)


def _front(spot: Spot, node: Node) -> str:
    if node.shape == "workflow":
        return _rect(spot) + _rect(spot, kind="inner", inset=3.5, radius=5)
    if node.shape in ("wait", "end"):
        return _rect(spot, radius=spot.height / 2)
    if node.shape == "approve":
        return _polygon(spot, across=12, down=spot.height / 2)
    if node.shape == "triage":
        return _polygon(spot, across=10, down=10)
    return _rect(spot) + _stripe(spot, node)


def _rect(spot: Spot, *, kind: str = "card", radius: float = 8, shift: float = 0, inset: float = 0) -> str:
    return (
        f'<rect class="{kind}" x="{spot.left + shift + inset:.1f}" y="{spot.top + shift + inset:.1f}" '
        f'width="{spot.width - 2 * inset:.1f}" height="{spot.height - 2 * inset:.1f}" rx="{radius:.0f}"/>'
    )


def _polygon(spot: Spot, across: float, down: float) -> str:
    """A box with its four corners cut off: a hexagon if the cuts meet at half its height."""
    xs = (spot.left, spot.left + across, spot.right - across, spot.right)
    ys = (spot.top, spot.top + down, spot.bottom - down, spot.bottom)
    corners = ((1, 0), (2, 0), (3, 1), (3, 2), (2, 3), (1, 3), (0, 2), (0, 1))
    points = " ".join(f"{xs[x]:.1f},{ys[y]:.1f}" for x, y in corners)
    return f'<polygon class="card" points="{points}"/>'


def _stripe(spot: Spot, node: Node) -> str:
    """A bar in the colour of the step's action."""
    kind = node.action.rpartition(" ")[2]
    known = kind if kind in ACTIONS else "other"
    return (
        f'<rect class="stripe do-{known}" x="{spot.left + 5:.1f}" y="{spot.top + 9:.1f}" width="3" '
        f'height="{spot.height - 18:.1f}" rx="1.5"/>'
    )


def _text_rows(spot: Spot, node: Node) -> Iterator[str]:
    room = spot.width - 2 * NODE_PADDING + 4
    rows = [("title", node.title, TITLE_SIZE), ("small", node.details, SMALL_SIZE)]
    counts = "counts bad" if node.statuses.get("failed") else "counts"
    rows += [("condition", node.when, SMALL_SIZE), (counts, node.counts, SMALL_SIZE)]
    rows = [row for row in rows if row[1]]
    top = spot.y - _ROW_HEIGHT * (len(rows) - 1) / 2
    for number, (kind, words, size) in enumerate(rows):
        y = top + number * _ROW_HEIGHT + size / 3
        yield f'<text class="{kind}" x="{spot.x:.1f}" y="{y:.1f}">{_text(truncate_to_width(words, size, room))}</text>'


def _glyph(spot: Spot, node: Node) -> str:
    """A mark for the status at the upper right corner: not everyone can see the colours."""
    glyph = STATUS_GLYPHS.get(node.status)
    if not glyph:
        return ""
    x, y = spot.right - 3, spot.top + 3
    circle = f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="8"/>'
    return f'{circle}<text class="glyph" x="{x:.1f}" y="{y + 4:.1f}">{glyph}</text>'
