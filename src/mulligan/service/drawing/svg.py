"""A workflow as one self-contained SVG, for light and dark pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

from mulligan.core.model.formatting import INVISIBLE_CHARACTERS
from mulligan.core.model.workflow import Workflow
from mulligan.service.drawing.layers import (
    LABEL_HEIGHT,
    NODE_PADDING,
    SMALL_SIZE,
    TITLE_SIZE,
    Spot,
    condition_text,
    small_text,
)
from mulligan.service.drawing.layout import Curve, Label, Layout, compute_layout
from mulligan.service.drawing.palette import ACTIONS, ALONE, EMBEDDED, ON_PAGE, STATUS_GLYPHS, embedded_style, style
from mulligan.service.drawing.picture import Link, Node, Picture
from mulligan.service.drawing.stacks import choose_picture
from mulligan.service.drawing.text_width import truncate_to_width

_ROW_HEIGHT = 16.0
# How many steps of a stack the tooltip names.
_NAMES_MAX = 10
# XML 1.0 cannot represent some of these; the others deceive a reader.
_INVALID = re.compile(f"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f{INVISIBLE_CHARACTERS}]")


def draw_svg(workflow: Workflow, statuses: Mapping[str, str] | None = None, *, is_expanded: bool = False) -> str:
    """The workflow as SVG text, with steps coloured by `statuses`; similar steps are one card, unless `is_expanded`."""
    drawn = choose_picture(workflow, statuses, is_expanded=is_expanded)
    layout = compute_layout(drawn)
    return "\n".join(_lines(drawn, layout)) + "\n"


def draw_embedded_svg(workflow: Workflow, statuses: Mapping[str, str] | None = None, *, nodes_max: int) -> str:
    """The same for a notebook: without a background, in colours that suit its theme; "" if it has too many nodes."""
    drawn = choose_picture(workflow, statuses)
    if len(drawn.nodes) > nodes_max:
        return ""
    # The drawings of all cells share one page: an arrow must not take its tip from a drawing that is folded away.
    tips = f"{EMBEDDED}-{crc32(repr(drawn).encode('utf-8', 'replace')):08x}"
    return "\n".join(_lines(drawn, compute_layout(drawn), tips=tips, is_embedded=True)) + "\n"


@dataclass(frozen=True)
class PageMarks:
    """What a drawing on a page has besides: where its nodes lead, which arrows a run took, which node is looked at."""

    hrefs: Mapping[str, str] = field(default_factory=dict)
    # None: it is no run, so no arrow is more than another.
    taken: frozenset[Link] | None = None
    chosen: str = ""


def draw_page_svg(drawn: Picture, marks: PageMarks) -> str:
    """A picture as part of a page, which has its style sheet (`page_style`): a policy forbids styles inside."""
    layout = compute_layout(drawn)
    wide, high = layout.right - layout.left, layout.bottom - layout.top
    box = f"{layout.left:.1f} {layout.top:.1f} {wide:.1f} {high:.1f}"
    is_run = " has-run" if marks.taken is not None else ""
    lines = [
        f'<svg class="{ON_PAGE}{is_run}" role="group" aria-label="Graph of {_text(drawn.name)}" width="{wide:.0f}" '
        f'height="{high:.0f}" viewBox="{box}">',
        f"<defs>{''.join(_marker(kind, ON_PAGE) for kind in ('success', 'failure', 'loop', 'leaf'))}</defs>",
    ]
    taken = marks.taken or frozenset()
    # What was taken is drawn above the rest.
    ordered = sorted(layout.curves, key=lambda curve: (curve.link in taken, curve.link.kind != "leaf"))
    lines += [_curve(curve, ON_PAGE, " taken" if curve.link in taken else "") for curve in ordered]
    lines += [_label(label, " taken" if label.link in taken else "") for label in layout.labels]
    for spot in layout.boxes:
        if node := spot.node:
            more = " chosen" if node.key == marks.chosen else ""
            href = marks.hrefs.get(node.key)
            drawn_node = _box(spot, node, more)
            lines.append(f'<a id="node-{node.key}" href="{_text(href)}">{drawn_node}</a>' if href else drawn_node)
    return "\n".join([*lines, "</svg>"])


def _lines(drawn: Picture, layout: Layout, *, tips: str = ALONE, is_embedded: bool = False) -> Iterator[str]:
    wide, high = layout.right - layout.left, layout.bottom - layout.top
    box = f"{layout.left:.1f} {layout.top:.1f} {wide:.1f} {high:.1f}"
    scope = EMBEDDED if is_embedded else ALONE
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{scope}" role="img" width="{wide:.0f}" height="{high:.0f}" '
        f'viewBox="{box}">'
    )
    yield f"<title>{_text(drawn.name)}</title>"
    yield f"<style>{embedded_style() if is_embedded else style()}</style>"
    yield f"<defs>{''.join(_marker(kind, tips) for kind in ('success', 'failure', 'loop', 'leaf'))}</defs>"
    if not is_embedded:
        size = f'width="{wide:.1f}" height="{high:.1f}"'
        yield f'<rect class="page" x="{layout.left:.1f}" y="{layout.top:.1f}" {size} rx="8"/>'
    # The light lines come first, so that the important ones are drawn above them.
    yield from (_curve(curve, tips) for curve in sorted(layout.curves, key=lambda curve: curve.link.kind != "leaf"))
    yield from (_label(label) for label in layout.labels)
    yield from (_box(spot, spot.node) for spot in layout.boxes if spot.node)
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


def _curve(curve: Curve, tips: str, more: str = "") -> str:
    kind = _class(curve.link)
    end = f' marker-end="url(#{tips}-{kind})"' if curve.has_arrow else ""
    start = f' marker-start="url(#{tips}-{kind})"' if curve.link.then == "rerun" else ""
    return f'<path class="line {kind}{more}" d="{curve.path}"{start}{end}/>'


def _label(label: Label, more: str = "") -> str:
    left, top = label.x - label.width / 2, label.y - LABEL_HEIGHT / 2
    return (
        f'<rect class="behind" x="{left:.1f}" y="{top:.1f}" width="{label.width:.1f}" '
        f'height="{LABEL_HEIGHT:.0f}" rx="4"/>'
        f'<text class="label {_class(label.link)}{more}" x="{label.x:.1f}" y="{label.y + 4:.1f}">'
        f"{_text(label.text)}</text>"
    )


def _box(spot: Spot, node: Node, more: str = "") -> str:
    if node.shape == "group":
        circle = f'<circle class="group" cx="{spot.x:.1f}" cy="{spot.y:.1f}" r="5">'
        return f"{circle}<title>{_text(node.title)}</title></circle>"
    status = f" is-{node.status}" if node.status in STATUS_GLYPHS else ""
    kind = f"{node.shape} stack" if node.members else node.shape
    words = "".join(_text_rows(spot, node))
    return (
        f'<g class="node {kind}{status}{more}" data-step="{_text(node.name or node.title)}">'
        f"<title>{_hover(node)}</title>{_outline(spot, node)}{words}{_glyph(spot, node)}</g>"
    )


def _hover(node: Node) -> str:
    status = node.counts or node.status
    rows = (node.title, _list_names(node.members), small_text(node), condition_text(node), status)
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
    rows = [("title", node.title, TITLE_SIZE), ("small", small_text(node), SMALL_SIZE)]
    counts = "counts bad" if node.statuses.get("failed") else "counts"
    rows += [("condition", condition_text(node), SMALL_SIZE), (counts, node.counts, SMALL_SIZE)]
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
