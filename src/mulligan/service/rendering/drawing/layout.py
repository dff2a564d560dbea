"""The finished layout of a picture: boxes, curves and labels with their coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from mulligan.service.rendering.drawing.coordinates import assign_coordinates
from mulligan.service.rendering.drawing.layers import LABEL_PADDING, SMALL_SIZE, Spot, Wire, build_layers
from mulligan.service.rendering.drawing.ordering import order_layers
from mulligan.service.rendering.drawing.picture import Link, Picture
from mulligan.service.rendering.drawing.text_width import text_width, truncate_to_width

MARGIN = 24.0
_LANE_GAP = 14.0
_CORNER = 10.0
_SIDE_ROOM = 16.0
_EXITS_APART = 12.0
_LOOP_LABEL_WIDTH_MAX = 220.0


@dataclass(frozen=True, slots=True)
class Curve:
    """The path of a link, as SVG path data. `has_arrow` is false where it joins another line."""

    link: Link
    path: str
    has_arrow: bool


@dataclass(frozen=True, slots=True)
class Label:
    """Text on a link, centred."""

    link: Link
    text: str
    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Layout:
    boxes: list[Spot]
    curves: list[Curve]
    labels: list[Label]
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Band:
    """The extent of one layer. Curves bend between bands and run straight through them."""

    top: float
    bottom: float
    left: float


@dataclass(frozen=True, slots=True)
class _Lane:
    """The path of a loop beside the layers it spans, with its label on it, or left of it if the loop is too small."""

    wire: Wire
    x: float
    label: Label

    @property
    def left(self) -> float:
        return self.label.x - self.label.width / 2


def compute_layout(picture: Picture) -> Layout:
    """Compute the layout of `picture`. The same picture always gets the same layout."""
    net = build_layers(picture)
    order_layers(net.layers)
    assign_coordinates(net.layers)
    bands = {layer[0].rank: _band(layer) for layer in net.layers}
    lanes = _lanes(net.upward, bands)
    exits = _side_exits(net.wires, {layer[0].rank: layer for layer in net.layers})
    curves = [Curve(wire.link, _path(wire, bands, exits.get(wire)), not wire.joins) for wire in net.wires]
    curves += [Curve(lane.wire.link, _loop_path(lane, bands), True) for lane in lanes]
    labels = [_label(wire.link, spot) for wire in net.wires for spot in wire.spots if spot.label]
    labels += [lane.label for lane in lanes if lane.label.text]
    boxes = [spot for layer in net.layers for spot in layer if spot.node]
    spots = [spot for layer in net.layers for spot in layer]
    return Layout(
        boxes,
        curves,
        labels,
        left=min([spot.left for spot in spots] + [lane.left for lane in lanes]) - MARGIN,
        top=-MARGIN,
        right=max(spot.right for spot in spots) + MARGIN,
        bottom=max(spot.bottom for spot in spots) + MARGIN,
    )


def _band(layer: list[Spot]) -> Band:
    return Band(
        top=min(spot.top for spot in layer),
        bottom=max(spot.bottom for spot in layer),
        left=min(spot.left for spot in layer),
    )


def _label(link: Link, spot: Spot) -> Label:
    return Label(link, spot.label, spot.x, spot.y, spot.width)


def _path(wire: Wire, bands: dict[int, Band], side_exit: float | None) -> str:
    """Down from the source, through each spot on the way, into the top of the target."""
    target = wire.spots[-1]
    pieces, x, y = _way_out(wire, bands[wire.spots[0].rank], side_exit)
    for lower in wire.spots[1:]:
        band = bands[lower.rank]
        pieces.append(_curve(x, y, lower.x, band.top))
        x, y = lower.x, band.top
        if lower is not target:
            pieces.append(_down(y, band.bottom))
            y = band.bottom
    return "".join([*pieces, _down(y, target.top) if target.node else ""])


def _way_out(wire: Wire, band: Band, side_exit: float | None) -> tuple[list[str], float, float]:
    """The first strokes and where they end: from the bottom, or for a failure from the side if that is free."""
    source, following = wire.spots[0], wire.spots[1]
    if wire.link.kind != "failure":
        return _drop(source.x, source.bottom if source.node else band.top, band.bottom)
    if side_exit is not None:
        turn = f"H{following.x - _CORNER:.1f}q{_CORNER:.0f} 0 {_CORNER:.0f} {_CORNER:.0f}"
        return [f"M{source.right:.1f} {side_exit:.1f}{turn}V{band.bottom:.1f}"], following.x, band.bottom
    aside = min(source.width / 4, 28.0)
    return _drop(source.x + (aside if following.x >= source.x else -aside), source.bottom, band.bottom)


def _side_exits(wires: list[Wire], rows: dict[int, list[Spot]]) -> dict[Wire, float]:
    """The height at which each failure leaves its source by the right side: the farther it goes, the higher."""
    leaving: dict[Spot, list[Wire]] = {}
    for wire in wires:
        if wire.link.kind == "failure" and _is_side_free(wire, rows[wire.spots[0].rank]):
            leaving.setdefault(wire.spots[0], []).append(wire)
    exits: dict[Wire, float] = {}
    for source, group in leaving.items():
        apart = min(_EXITS_APART, (source.height - 2 * _CORNER) / len(group))
        for number, wire in enumerate(sorted(group, key=lambda wire: -wire.spots[1].x)):
            exits[wire] = source.y + (number - (len(group) - 1) / 2) * apart
    return exits


def _is_side_free(wire: Wire, row: list[Spot]) -> bool:
    source, following = wire.spots[0], wire.spots[1]
    if following.x < source.right + _SIDE_ROOM:
        return False
    return source.order + 1 == len(row) or following.x < row[source.order + 1].left - _SIDE_ROOM / 2


def _drop(x: float, y: float, to_y: float) -> tuple[list[str], float, float]:
    return [f"M{x:.1f} {y:.1f}{_down(y, to_y)}"], x, to_y


def _down(y: float, to_y: float) -> str:
    # An arrowhead turns with the last stroke, and a stroke of no length has no direction.
    return f"V{to_y:.1f}" if to_y - y > 0.05 else ""


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(x - to_x) < 0.5:
        return f"V{to_y:.1f}"
    middle = (y + to_y) / 2
    return f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"


def _lanes(loops: list[Wire], bands: dict[int, Band]) -> list[_Lane]:
    """A lane for each loop, left of the layers it spans; short loops inside, and no two overlap."""
    lanes: list[_Lane] = []
    for wire in sorted(loops, key=lambda wire: wire.spots[0].rank - wire.spots[1].rank):
        spanned = [band for rank, band in bands.items() if wire.spots[1].rank <= rank <= wire.spots[0].rank]
        edges = [band.left for band in spanned] + [lane.left for lane in lanes if _meet(lane.wire, wire)]
        lanes.append(_lane(wire, min(edges) - _LANE_GAP, spanned))
    return lanes


def _lane(wire: Wire, right: float, spanned: list[Band]) -> _Lane:
    """The lane left of `right`. Its label is between two layers, where no other loop turns off."""
    text = truncate_to_width(wire.link.label, SMALL_SIZE, _LOOP_LABEL_WIDTH_MAX)
    room = round(text_width(text, SMALL_SIZE) + 2 * LABEL_PADDING)
    if len(spanned) == 1:
        return _Lane(wire, right, Label(wire.link, text, right - room / 2, wire.spots[0].y, room))
    middle = len(spanned) // 2
    y = (spanned[middle - 1].bottom + spanned[middle].top) / 2
    return _Lane(wire, right - room / 2, Label(wire.link, text, right - room / 2, y, room))


def _meet(one: Wire, other: Wire) -> bool:
    return one.spots[1].rank <= other.spots[0].rank and other.spots[1].rank <= one.spots[0].rank


def _loop_path(lane: _Lane, bands: dict[int, Band]) -> str:
    """From the source up the lane into the target: by their left sides, or around the nodes in between."""
    source, target = lane.wire.spots
    corner, x = _CORNER, lane.x
    if source.order == 0:
        low = source.y + source.height / 5
        start = f"M{source.left:.1f} {low:.1f}"
    else:
        low = bands[source.rank].bottom + 7
        start = f"M{source.x - 12:.1f} {source.bottom:.1f}V{low:.1f}"
    if target.order == 0:
        high = target.y - target.height / 5
        finish = f"H{target.left:.1f}"
    else:
        high = bands[target.rank].top - 11
        finish = f"H{target.x - 12:.1f}V{target.top:.1f}"
    corner = min(_CORNER, (low - high) / 2)
    up = f"H{x + corner:.1f}q{-corner:.1f} 0 {-corner:.1f} {-corner:.1f}V{high + corner:.1f}"
    return f"{start}{up}q0 {-corner:.1f} {corner:.1f} {-corner:.1f}{finish}"
