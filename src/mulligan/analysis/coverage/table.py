"""The table of steps and failures as people read it: what is wrong first, and steps that behave alike as one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from mulligan.analysis.coverage.figures import is_accepted
from mulligan.analysis.coverage.results import DEALT_WITH, VERDICTS, Cell, Coverage, FailureKind, Verdict
from mulligan.core.model.program_calls import name_of

# The column of failures that have none of their own.
OTHERS = "other failures"
# Up to so many steps the table has a row for each of them, in the order of the file.
STEPS_MAX = 25
# A longer table has at most so many rows, unless all are asked for.
ROWS_MAX = 40
# What stops a run from outside comes last, behind the failures of steps and of what belongs to them.
_GROUPS = {"step": 0, "model": 0, "cancel": 2, "kill": 2}
_RANK = {verdict: rank for rank, verdict in enumerate(VERDICTS)}


class Mark(msgspec.Struct, frozen=True):
    """What a cell shows: what happens in its worst case, and what if the failure happens only once."""

    verdict: Verdict
    once: Verdict
    is_accepted: bool = False

    @property
    def is_open(self) -> bool:
        return not self.is_accepted and self.verdict not in DEALT_WITH


class CoverageRow(msgspec.Struct, frozen=True):
    """Steps to which the same happens. The first of them has the cells."""

    steps: tuple[str, ...]
    # By the name of the failure. A failure that cannot happen to these steps is not here.
    cells: dict[str, Cell]
    marks: dict[str, Mark]

    @property
    def is_open(self) -> bool:
        return any(mark.is_open for mark in self.marks.values())


class CoverageTable(msgspec.Struct, frozen=True):
    columns: tuple[FailureKind, ...]
    rows: tuple[CoverageRow, ...]
    # Steps that have no row here, and failures that have no column: each of them is dealt with everywhere.
    hidden_steps: int = 0
    hidden_failures: int = 0
    # Rows that are left out although something in them is open.
    hidden_open_rows: int = 0
    # Failures that share the column `OTHERS`.
    folded: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not (self.hidden_steps or self.hidden_failures)


def mark_of(cell: Cell) -> Mark:
    alone = [case.verdict for case in cell.cases if case.times == "once" and not case.with_step]
    return Mark(cell.verdict, alone[0] if alone else cell.verdict, is_accepted(cell))


def arrange_table(coverage: Coverage, *, shows_all: bool = False, columns_max: int | None = None) -> CoverageTable:
    """The rows and columns to show.

    A short table has all of them. In a long one, steps to which exactly the same happens share a row, the worst rows
    come first, and what is dealt with everywhere is left out, unless `shows_all`. Of more failures than
    `columns_max` the rarest share a column.
    """
    cells: dict[str, dict[str, Cell]] = {step: {} for step in coverage.steps}
    for cell in coverage.cells:
        cells.setdefault(cell.step, {})[cell.failure] = cell
    cells = {step: found for step, found in cells.items() if found}
    columns = _columns(coverage, cells)
    called = coverage.called_at
    if len(cells) <= STEPS_MAX or (called and len(_grouped(cells, called)) <= STEPS_MAX):
        rows = _grouped(cells, called) if called else [_row((step,), found) for step, found in cells.items()]
        return CoverageTable(columns, tuple(rows))
    folded: frozenset[str] = frozenset()
    if columns_max is not None and not shows_all and len(columns) > columns_max:
        folded = _rarest(cells, columns, len(columns) - columns_max + 1)
        cells = {step: _folded(found, folded) for step, found in cells.items()}
        columns = (*(one for one in columns if one.name not in folded), FailureKind(OTHERS, ""))
    rows = _grouped(cells)
    rows.sort(key=_worst_first)
    if shows_all:
        return CoverageTable(columns, tuple(rows))
    wanted = [row for row in rows if row.is_open] or rows[:1]
    shown = wanted[:ROWS_MAX]
    names = {name for row in shown for name, mark in row.marks.items() if mark.is_open}
    kept = tuple(one for one in columns if one.name in names) or columns
    return CoverageTable(
        columns=kept,
        rows=tuple(shown),
        hidden_steps=len(cells) - sum(len(row.steps) for row in shown),
        hidden_failures=len(columns) - len(kept),
        hidden_open_rows=len(wanted) - len(shown),
        folded=tuple(one.name for one in coverage.failures if one.name in folded) if OTHERS in names else (),
    )


def _rarest(cells: Mapping[str, Mapping[str, Cell]], columns: Iterable[FailureKind], count: int) -> frozenset[str]:
    """The failures that happen to the fewest steps."""
    steps = Counter(name for row in cells.values() for name in row)
    return frozenset(one.name for one in sorted(columns, key=lambda one: steps[one.name])[:count])


def _folded(cells: dict[str, Cell], names: frozenset[str]) -> dict[str, Cell]:
    """The cells of a step, of which those with these names are one, as bad as the worst of them."""
    kept = {name: cell for name, cell in cells.items() if name not in names}
    others = [cell for name, cell in cells.items() if name in names]
    if others:
        kept[OTHERS] = max(others, key=lambda cell: (not is_accepted(cell), _RANK[cell.verdict]))
    return kept


def _columns(coverage: Coverage, cells: Mapping[str, Mapping[str, Cell]]) -> tuple[FailureKind, ...]:
    used = {name for row in cells.values() for name in row}
    known = [kind for kind in coverage.failures if kind.name in used]
    missing = used - {kind.name for kind in known}
    found = [*known, *(FailureKind(name, name) for name in sorted(missing))]
    return tuple(sorted(found, key=lambda kind: _GROUPS.get(kind.of, 1)))


def _row(steps: tuple[str, ...], cells: dict[str, Cell]) -> CoverageRow:
    return CoverageRow(steps, cells, {name: mark_of(cell) for name, cell in cells.items()})


def _grouped(cells: Mapping[str, dict[str, Cell]], called_at: Mapping[str, str] | None = None) -> list[CoverageRow]:
    """Steps to which the same happens. `called_at`: only calls of one step in one line, such as those of a gather."""
    alike: dict[tuple[str, str, frozenset[tuple[str, Verdict, Verdict, bool]]], list[str]] = {}
    for step, found in cells.items():
        key = frozenset((name, *msgspec.structs.astuple(mark_of(cell))) for name, cell in found.items())
        at, name = (called_at.get(step, ""), name_of(step)) if called_at else ("", "")
        alike.setdefault((at, name, key), []).append(step)
    return [_row(tuple(steps), cells[steps[0]]) for steps in alike.values()]


def _worst_first(row: CoverageRow) -> tuple[int, ...]:
    """By how many failures stop everything, then fail the run, then wait for a person; by the number of steps."""
    counts = [sum(mark.is_open and mark.verdict == verdict for mark in row.marks.values()) for verdict in VERDICTS]
    return (*(-number for number in reversed(counts)), -len(row.steps))


def steps_label(steps: Collection[str]) -> str:
    """`sim_1`, or `sim_1 and 996 like it`."""
    first = next(iter(steps))
    return first if len(steps) == 1 else f"{first} and {len(steps) - 1:,} like it"


def used_marks(rows: Iterable[CoverageRow], columns: Iterable[FailureKind]) -> list[Mark]:
    """The kinds of marks in these cells, each once, from best to worst: for a legend."""
    names = {one.name for one in columns}
    found = {mark for row in rows for name, mark in row.marks.items() if name in names}
    return sorted(found, key=lambda mark: (mark.is_accepted, _RANK[mark.verdict], -_RANK[mark.once]))
