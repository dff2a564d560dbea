"""Failures of two steps in one run: all of them where that is feasible, else a sample that depends on a seed alone.

Two steps can interact if one is behind the other, or if something is behind both of them: a step that needs both, a
remediation of both, or `end`. The sample has every such pair of steps at least once, as far as the budget goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

import msgspec

from mulligan.analysis.coverage.case_end import judge
from mulligan.analysis.coverage.exploring import Explorer, Row, make_case
from mulligan.analysis.coverage.failure_kinds import Kind
from mulligan.analysis.coverage.injection import ALWAYS, Injection, Scenario
from mulligan.analysis.coverage.results import VERDICTS, Case, Cell

# How many events are played for pairs at most, and how many pairs.
EVENTS_MAX = 30_000
PAIRS_MAX = 1_000
# The kinds of failures that are played in pairs: those of steps themselves.
_PARTS = frozenset({"step"})

_Pair = tuple[Row, Kind, Row, Kind]


def explore_pairs(
    explorer: Explorer, cells: Sequence[Cell], seed: int, may_go_on: Callable[[], bool]
) -> tuple[list[Case], int, bool]:
    """The pairs that end worse than each of their failures alone; how many were played; whether that is a sample."""
    verdicts = {(cell.step, cell.failure): cell.verdict for cell in cells}
    rows = [row for row in explorer.rows.values() if not row.path and not explorer.assumptions_of(row).injections]
    kinds = {
        row.name: [kind for kind in explorer.kinds[row.name] if kind.of in _PARTS and kind.after is None]
        for row in rows
    }
    # With `end` behind all of them, all pairs of steps can interact.
    places = [pair for pair in combinations(rows, 2) if all(kinds[row.name] for row in pair)]
    total = sum(len(kinds[first.name]) * len(kinds[second.name]) for first, second in places)
    is_sample = total > PAIRS_MAX
    pairs = _sample(places, kinds, seed) if is_sample else _all(places, kinds)
    found: list[Case] = []
    count, begun = 0, explorer.events
    for first, kind, second, other in pairs:
        if count >= PAIRS_MAX or explorer.events - begun > EVENTS_MAX or not may_go_on():
            is_sample = True
            break
        count += 1
        case = _play(explorer, first, kind, second, other)
        worse = [
            VERDICTS.index(verdicts.get(cell, "recovered"))
            for cell in ((first.name, kind.name), (second.name, other.name))
        ]
        if VERDICTS.index(case.verdict) > max(worse):
            found.append(case)
    return found, count, is_sample


def _all(places: Sequence[tuple[Row, Row]], kinds: dict[str, list[Kind]]) -> Iterator[_Pair]:
    for first, second in places:
        for kind, other in product(kinds[first.name], kinds[second.name]):
            yield first, kind, second, other


def _sample(places: Sequence[tuple[Row, Row]], kinds: dict[str, list[Kind]], seed: int) -> Iterator[_Pair]:
    """Every pair of steps once, in an order that the seed decides, each with two kinds that it chooses."""

    def number(text: str) -> int:
        return int.from_bytes(hashlib.blake2b(f"{seed}:{text}".encode(), digest_size=8).digest(), "big")

    ordered = sorted(places, key=lambda pair: number(f"{pair[0].name}:{pair[1].name}"))
    for turn in range(max(map(len, kinds.values()), default=0)):
        for first, second in ordered:
            one, two = kinds[first.name], kinds[second.name]
            chosen = number(f"{first.name}:{second.name}:{turn}")
            yield first, one[chosen % len(one)], second, two[chosen // len(one) % len(two)]


def _play(explorer: Explorer, first: Row, kind: Kind, second: Row, other: Kind) -> Case:
    """Both steps fail, always."""
    assumed = explorer.assumptions_of(first)
    injections = (
        Injection(second.path, second.step, other, ALWAYS),
        Injection(first.path, first.step, kind, ALWAYS),
    )
    player = explorer.play(Scenario(injections), assumed)
    case = make_case(first, kind, "always", judge(player, first.path, first.step, kind))
    return msgspec.structs.replace(case, with_step=second.name, with_failure=other.name)
