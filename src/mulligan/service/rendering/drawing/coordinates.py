"""Assign coordinates: each layer in turn moves as close to its neighbours as its order and the gaps allow."""

from __future__ import annotations

from itertools import pairwise
from math import inf

from mulligan.service.rendering.drawing.layers import Spot

# A small drawing gets many rounds; a huge one gets fewer, so that the work stays proportional to its size.
_ROUNDS_MAX = 8
_ROUNDS_MIN = 2
_VISITS_MAX = 50_000
GAP_ACROSS = 28.0
_GAP_BENDS = 14.0
_GAP_DOWN = 34.0
_GAP_LABEL = 16.0
_GAP_DOWN_MAX = 110.0
# A layer's gap grows with its longest sideways run, so that its curves are not flat.
_SLOPE = 0.07
_NUDGE = 14.0
_CROWD = 10.0


def assign_coordinates(layers: list[list[Spot]]) -> None:
    """Set the centre of every spot: no two spots of a layer closer than the gap, layers one below the other."""
    for layer in layers:
        _pack(layer)
    rounds = max(_ROUNDS_MIN, min(_ROUNDS_MAX, _VISITS_MAX // sum(map(len, layers))))
    for _ in range(rounds):
        for layer in layers[1:]:
            _settle(layer, [_pull(spot, spot.above) for spot in layer])
        for layer in reversed(layers[:-1]):
            _settle(layer, [_pull(spot, spot.below) for spot in layer])
    for _ in range(rounds):
        for layer in [*layers, *reversed(layers)]:
            _settle(layer, [_pull(spot, spot.above + spot.below) for spot in layer])
    for layer in layers[1:]:
        _straighten(layer)
    _stack(layers)


def _straighten(layer: list[Spot]) -> None:
    """Move a spot that is slightly off its strongest neighbour above right under it, if there is room."""
    for number, spot in enumerate(layer):
        left = layer[number - 1].right + _CROWD if number else -inf
        right = layer[number + 1].left - _CROWD if number + 1 < len(layer) else inf
        x = max(spot.above, key=lambda pull: pull[1])[0].x if spot.above else spot.x
        if abs(x - spot.x) <= _NUDGE and left <= x - spot.width / 2 and x + spot.width / 2 <= right:
            spot.x = x


def _gap(left: Spot, right: Spot) -> float:
    return GAP_ACROSS if left.node and right.node else _GAP_BENDS


def _offsets(layer: list[Spot]) -> list[float]:
    """The least distance of each spot from the first one, centre to centre."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + left.width / 2 + _gap(left, right) + right.width / 2)
    return offsets


def _pack(layer: list[Spot]) -> None:
    offsets = _offsets(layer)
    for spot, offset in zip(layer, offsets, strict=True):
        spot.x = offset - offsets[-1] / 2


def _pull(spot: Spot, neighbours: list[tuple[Spot, float]]) -> tuple[float, float]:
    """The preferred position of a spot, and its weight."""
    if not neighbours:
        return spot.x, 0.1
    weight = sum(pull for _, pull in neighbours)
    return sum(neighbour.x * pull for neighbour, pull in neighbours) / weight, weight


def _settle(layer: list[Spot], wishes: list[tuple[float, float]]) -> None:
    """Move the spots to the positions closest to `wishes` that keep order and gaps: isotonic regression, by pooling."""
    offsets = _offsets(layer)
    pools: list[tuple[float, float, int]] = []
    for (wish, weight), offset in zip(wishes, offsets, strict=True):
        centre, size = wish - offset, 1
        while pools and pools[-1][0] > centre:
            other, other_weight, other_size = pools.pop()
            centre = (centre * weight + other * other_weight) / (weight + other_weight)
            weight, size = weight + other_weight, size + other_size
        pools.append((centre, weight, size))
    centres = [centre for centre, _, size in pools for _ in range(size)]
    for spot, centre, offset in zip(layer, centres, offsets, strict=True):
        spot.x = centre + offset


def _stack(layers: list[list[Spot]]) -> None:
    y = 0.0
    for layer in layers:
        height = max(spot.height for spot in layer)
        for spot in layer:
            spot.y = y + height / 2
        y += height + _gap_below(layer)


def _gap_below(layer: list[Spot]) -> float:
    is_labelled = any(spot.label or lower.label for spot in layer for lower, _ in spot.below)
    sideways = max((abs(spot.x - lower.x) for spot in layer for lower, _ in spot.below), default=0.0)
    return min((_GAP_LABEL if is_labelled else _GAP_DOWN) + _SLOPE * sideways, _GAP_DOWN_MAX)
