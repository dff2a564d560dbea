"""Failures of two steps in one run: all of them where that is feasible, else a sample that depends on a seed alone.

Any two steps can interact, since `end` is behind all. The sample has every pair of steps at least once, as far as the
budget goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, count, product
from math import comb, isqrt

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
    kinds = {row.name: of_row for row in rows if (of_row := _kinds(explorer, row))}
    rows = [row for row in rows if row.name in kinds]
    counts = [len(of_row) for of_row in kinds.values()]
    total = (sum(counts) ** 2 - sum(one**2 for one in counts)) // 2
    is_sample = total > PAIRS_MAX
    pairs = _sample(rows, kinds, seed) if is_sample else _all(rows, kinds)
    found: list[Case] = []
    played, begun = 0, explorer.events
    for first, kind, second, other in pairs:
        if played >= PAIRS_MAX or explorer.events - begun > EVENTS_MAX or not may_go_on():
            is_sample = True
            break
        played += 1
        case = _play(explorer, first, kind, second, other)
        worse = [
            VERDICTS.index(verdicts.get(cell, "recovered"))
            for cell in ((first.name, kind.name), (second.name, other.name))
        ]
        if VERDICTS.index(case.verdict) > max(worse):
            found.append(case)
    return found, played, is_sample


def _kinds(explorer: Explorer, row: Row) -> list[Kind]:
    return [kind for kind in explorer.kinds[row.name] if kind.of in _PARTS and kind.after is None]


def _all(rows: Sequence[Row], kinds: dict[str, list[Kind]]) -> Iterator[_Pair]:
    for first, second in combinations(rows, 2):
        for kind, other in product(kinds[first.name], kinds[second.name]):
            yield first, kind, second, other


def _sample(rows: Sequence[Row], kinds: dict[str, list[Kind]], seed: int) -> Iterator[_Pair]:
    """Every pair of steps once, in an order that the seed decides, each with two kinds that it chooses."""

    def number(text: str) -> int:
        return int.from_bytes(hashlib.blake2b(f"{seed}:{text}".encode(), digest_size=8).digest(), "big")

    ordered: Iterable[tuple[Row, Row]]
    if comb(len(rows), 2) <= PAIRS_MAX:
        ordered = sorted(combinations(rows, 2), key=lambda pair: number(f"{pair[0].name}:{pair[1].name}"))
    else:
        ordered = list(_draw(rows, number))
    for turn in range(max(map(len, kinds.values()), default=0)):
        for first, second in ordered:
            one, two = kinds[first.name], kinds[second.name]
            chosen = number(f"{first.name}:{second.name}:{turn}")
            yield first, one[chosen % len(one)], second, two[chosen // len(one) % len(two)]


def _draw(rows: Sequence[Row], number: Callable[[str], int]) -> Iterator[tuple[Row, Row]]:
    """As many different pairs as are played at most, without a list of all: these grow with the square of the steps."""
    drawn: set[int] = set()
    draws = count()
    while len(drawn) < PAIRS_MAX:
        place = number(f"pair {next(draws)}") % comb(len(rows), 2)
        if place not in drawn:
            drawn.add(place)
            # The pairs in the order (0, 1), (0, 2), (1, 2), (0, 3) …
            second = (1 + isqrt(1 + 8 * place)) // 2
            yield rows[place - comb(second, 2)], rows[second]


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
