"""Order each layer: a few barycentre sweeps, keeping the order with the fewest crossings."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from mulligan.service.rendering.drawing.layers import Spot

_SWEEPS = 8


def order_layers(layers: list[list[Spot]]) -> None:
    """Reorder the spots of every layer in place so that few wires cross. Ties keep the order of the file."""
    _number(layers)
    best, fewest = _orders(layers), _crossings(layers)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        _sweep_down(layers) if sweep % 2 == 0 else _sweep_up(layers)
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = _orders(layers), crossings
    layers[:] = best
    _number(layers)


def _orders(layers: list[list[Spot]]) -> list[list[Spot]]:
    return [list(layer) for layer in layers]


def _number(layers: Iterable[list[Spot]]) -> None:
    for layer in layers:
        for order, spot in enumerate(layer):
            spot.order = order


def _sweep_down(layers: list[list[Spot]]) -> None:
    for layer in layers[1:]:
        layer.sort(key=lambda spot: _barycentre(spot, spot.above))
        _number([layer])


def _sweep_up(layers: list[list[Spot]]) -> None:
    for layer in reversed(layers[:-1]):
        layer.sort(key=lambda spot: _barycentre(spot, spot.below))
        _number([layer])


def _barycentre(spot: Spot, neighbours: list[tuple[Spot, float]]) -> float:
    if not neighbours:
        return spot.order
    return sum(neighbour.order for neighbour, _ in neighbours) / len(neighbours)


def _crossings(layers: list[list[Spot]]) -> int:
    return sum(_crossings_below(layer) for layer in layers[:-1])


def _crossings_below(layer: list[Spot]) -> int:
    """How many pairs of wires that leave `layer` cross: inversions, counted by insertion."""
    seen: list[int] = []
    crossings = 0
    for spot in layer:
        targets = sorted(lower.order for lower, _ in spot.below)
        crossings += sum(len(seen) - bisect_right(seen, target) for target in targets)
        for target in targets:
            insort(seen, target)
    return crossings
