"""Put nodes into layers: every link leads downwards, through a spot in each layer that it crosses.

Steps are on even ranks. A label is on the odd rank below its source, as a spot like any other, so that no two labels
overlap. Odd ranks without a label are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from mulligan.service.rendering.drawing.picture import END_KEY, Link, Node, Picture
from mulligan.service.rendering.drawing.text_width import text_width, truncate_to_width

TITLE_SIZE = 14.0
SMALL_SIZE = 11.0
# Titles are bold, and bold letters are wider.
BOLD = 1.08
NODE_WIDTH_MIN = 96.0
NODE_WIDTH_MAX = 260.0
NODE_PADDING = 18.0
LABEL_HEIGHT = 18.0
LABEL_PADDING = 6.0
BEND_WIDTH = 10.0
# With more bends than this, further long links run straight, so that the time stays linear.
BENDS_MAX = 20_000

# How strongly a link pulls its two ends into a vertical line: the success path is the straight line down.
_PULL = {"success": 64.0, "always": 16.0, "failure": 0.5, "leaf": 0.1}


@dataclass(slots=True, eq=False)
class Spot:
    """A position in a layer: a node, a label, or a bend of a long link. `x` and `y` are its centre."""

    rank: int
    width: float = BEND_WIDTH
    height: float = 0.0
    node: Node | None = None
    label: str = ""
    x: float = 0.0
    y: float = 0.0
    order: int = 0
    above: list[tuple[Spot, float]] = field(default_factory=list)
    below: list[tuple[Spot, float]] = field(default_factory=list)

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Wire:
    """A link and the spots it runs through, from its source to its target. `joins`: it ends in another wire."""

    link: Link
    spots: tuple[Spot, ...]
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Layers:
    """`wires` lead down. `upward` holds the others, most of them loops, as wires of only a source and a target."""

    layers: list[list[Spot]]
    wires: list[Wire]
    upward: list[Wire]


def build_layers(picture: Picture) -> Layers:
    """Put every node, label and bend on its layer, and make a wire for each link."""
    ranks = _ranks(picture)
    spots = {node.key: _make_node_spot(node, ranks[node.key]) for node in picture.nodes}
    downward = [link for link in picture.links if ranks[link.source] < ranks[link.target]]
    router = _LinkRouter(spots, _used_ranks(ranks, downward))
    for link in downward:
        router.route(link)
    others = [link for link in picture.links if ranks[link.source] >= ranks[link.target]]
    upward = [Wire(link, (spots[link.source], spots[link.target])) for link in others]
    return Layers(router.layers, router.wires, upward)


def _ranks(picture: Picture) -> dict[str, int]:
    """The longest path to each node, in steps of two; `end` below everything."""
    following: dict[str, list[str]] = {node.key: [] for node in picture.nodes}
    missing = dict.fromkeys(following, 0)
    for link in picture.links:
        if not link.is_loop:
            following[link.source].append(link.target)
            missing[link.target] += 1
    ranks = dict.fromkeys(following, 0)
    for key in _topological_order(following, missing):
        for target in following[key]:
            ranks[target] = max(ranks[target], ranks[key] + 2)
    # A part of a graph has no `end`.
    if END_KEY in ranks:
        ranks[END_KEY] = max((rank for key, rank in ranks.items() if key != END_KEY), default=-2) + 2
    return ranks


def _topological_order(following: dict[str, list[str]], missing: dict[str, int]) -> Iterator[str]:
    """Every key once, after the keys that lead to it. A cycle without a loop edge starts at its first step."""
    done: set[str] = set()
    for first in [*(key for key, count in missing.items() if not count), *missing]:
        ready = deque([first] if first not in done else [])
        done.add(first)
        while ready:
            key = ready.popleft()
            yield key
            for target in following[key]:
                missing[target] -= 1
                if not missing[target] and target not in done:
                    done.add(target)
                    ready.append(target)


def _used_ranks(ranks: dict[str, int], links: list[Link]) -> list[int]:
    return sorted(set(ranks.values()) | {ranks[link.source] + 1 for link in links if link.label})


def _make_node_spot(node: Node, rank: int) -> Spot:
    if node.shape == "group":
        return Spot(rank, width=14.0, height=14.0, node=node)
    rows = [
        text_width(node.title, TITLE_SIZE) * BOLD,
        *(text_width(line, SMALL_SIZE) for line in (node.details, node.when, node.counts)),
    ]
    wide = min(max(max(rows) + 2 * NODE_PADDING, NODE_WIDTH_MIN), NODE_WIDTH_MAX)
    lines = sum(1 for row in rows if row)
    return Spot(rank, width=round(wide), height=(34.0, 48.0, 64.0, 80.0)[lines - 1], node=node)


class _LinkRouter:
    """Routes the links through the layers, one after the other."""

    def __init__(self, spots: dict[str, Spot], used: list[int]) -> None:
        self.wires: list[Wire] = []
        self._spots = spots
        self._used = used
        self._place = {rank: index for index, rank in enumerate(used)}
        self.layers: list[list[Spot]] = [[] for _ in used]
        self._bends = 0
        self._trunk: list[Spot] = []
        for spot in spots.values():
            self.layers[self._place[spot.rank]].append(spot)

    def route(self, link: Link) -> None:
        source, target = self._spots[link.source], self._spots[link.target]
        between = self._used[self._place[source.rank] + 1 : self._place[target.rank]]
        if link.kind == "leaf" and between:
            self._join_trunk(link, source, between)
            return
        if self._bends + len(between) > BENDS_MAX:
            between = between[:1] if link.label else []
        self._run(link, (source, *(self._bend(link, source, rank) for rank in between), target))

    def _run(self, link: Link, spots: tuple[Spot, ...], joins: bool = False) -> None:
        pull = _PULL[link.kind]
        for upper, lower in pairwise(spots):
            # Straight bends matter more than centred nodes.
            stiff = pull * 4 if upper.node is None and lower.node is None else pull
            upper.below.append((lower, stiff))
            lower.above.append((upper, stiff))
        self.wires.append(Wire(link, spots, joins))

    def _bend(self, link: Link, source: Spot, rank: int) -> Spot:
        spot = Spot(rank)
        if link.label and rank == source.rank + 1:
            spot.label = truncate_to_width(link.label, SMALL_SIZE, NODE_WIDTH_MAX)
            spot.width = round(text_width(spot.label, SMALL_SIZE) + 2 * LABEL_PADDING)
            spot.height = LABEL_HEIGHT
        self._bends += 1
        self.layers[self._place[rank]].append(spot)
        return spot

    def _join_trunk(self, link: Link, source: Spot, between: list[int]) -> None:
        """Let all long links to `end` share one line, so that a thousand leaves are not a thousand long lines."""
        known = self._trunk[0].rank if self._trunk else self._spots[END_KEY].rank
        missing = [rank for rank in between if rank < known]
        if missing:
            grown = [self._bend(link, source, rank) for rank in missing]
            rest = (self._trunk[0],) if self._trunk else (self._spots[END_KEY],)
            self._run(link, (*grown, *rest), joins=bool(self._trunk))
            self._trunk[:0] = grown
        joint = self._trunk[self._place[between[0]] - self._place[self._trunk[0].rank]]
        self._run(link, (source, joint), joins=True)
