"""Coverage on a terminal: the table of steps and failures, the findings, and the story of one case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mulligan.analysis.coverage.figures import Figures, describe_figures, is_open
from mulligan.analysis.coverage.results import Case, Coverage, FailureKind, Finding
from mulligan.analysis.coverage.table import (
    OTHERS,
    CoverageRow,
    CoverageTable,
    Mark,
    arrange_table,
    steps_label,
    used_marks,
)
from mulligan.analysis.coverage.words import (
    describe_agent_costs,
    describe_case,
    describe_failure_of,
    describe_pair,
    fold_skipped,
    meaning_of,
    played_text,
    sign_of,
    story_command,
    time_in_story,
    tone_of,
    word_of,
)
from mulligan.core.model.text.formatting import format_duration, pluralize, single_line
from mulligan.errors import Problem
from mulligan.history.story import StoryLine
from mulligan.service.rendering.console.terminal_text import tinted, visible
from mulligan.service.rendering.story_text import PLACE_CHARS_MAX

# How many findings are shown, unless all are asked for.
FINDINGS_MAX = 10
# A longer table has so many columns; further failures share one.
COLUMNS_MAX = 14
# And how many pairs of failures.
PAIRS_MAX = 3
# And how much of what was assumed.
NOTES_MAX = 5
# The widest column of steps, and of names of failures.
_STEP_CHARS_MAX, _FAILURE_CHARS_MAX = 32, 34
# A sign, or two, and a blank.
_SIGN_COLUMN = 3
_GAP = 2
# What cannot happen to a step.
_NOTHING = "·"


def table_lines(table: CoverageTable, width: int, *, is_coloured: bool) -> Iterator[str]:
    """The lines of the table, its legend, and what it leaves out. No line of the table is wider than `width`."""
    if not table.rows:
        return
    names = [_shown(steps_label(row.steps), _STEP_CHARS_MAX) for row in table.rows]
    kinds = [_shown(kind.name, _FAILURE_CHARS_MAX) for kind in table.columns]
    first = max(map(len, [*names, "STEP"]))
    if lines := _in_words(table, names, kinds, first, width, is_coloured=is_coloured):
        yield from lines
    else:
        yield from _in_signs(table, names, kinds, first, width, is_coloured=is_coloured)
    yield ""
    yield from _legend(table, width, is_coloured=is_coloured)
    yield from _left_out(table)


def _shown(text: str, chars_max: int) -> str:
    line = visible(single_line(text))
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def _in_words(
    table: CoverageTable, names: Sequence[str], kinds: Sequence[str], first: int, width: int, *, is_coloured: bool
) -> list[str]:
    """A column for each failure, with a sign and a word in each cell; nothing if that is too wide."""
    cells = [[_said(row.marks.get(kind.name)) for kind in table.columns] for row in table.rows]
    widths = [max(len(kind), *(len(row[place]) for row in cells)) for place, kind in enumerate(kinds)]
    if first + sum(wide + _GAP for wide in widths) > width:
        return []
    gap = " " * _GAP
    lines = [gap.join(["STEP".ljust(first), *(kind.ljust(wide) for kind, wide in zip(kinds, widths, strict=True))])]
    for name, row, said in zip(names, table.rows, cells, strict=True):
        painted = [
            _painted(text.ljust(wide), row.marks.get(kind.name), is_coloured=is_coloured)
            for text, wide, kind in zip(said, widths, table.columns, strict=True)
        ]
        lines.append(gap.join([name.ljust(first), *painted]))
    return [line.rstrip() for line in lines]


def _said(mark: Mark | None) -> str:
    return _NOTHING if mark is None else f"{sign_of(mark):<2} {word_of(mark)}"


def _in_signs(
    table: CoverageTable, names: Sequence[str], kinds: Sequence[str], first: int, width: int, *, is_coloured: bool
) -> Iterator[str]:
    """Narrow columns of signs. The names of the failures stand above them like stairs; several blocks if need be."""
    for number, block in enumerate(_blocks(kinds, first, width)):
        if number:
            yield ""
        for place in block:
            bars = "│  " * (place - block.start)
            yield f"{'STEP' if place == block.start else '':<{first}}  {bars}┌ {kinds[place]}"
        for name, row in zip(names, table.rows, strict=True):
            marks = [row.marks.get(table.columns[place].name) for place in block]
            signs = [
                _painted((_NOTHING if mark is None else sign_of(mark)).ljust(2), mark, is_coloured=is_coloured)
                for mark in marks
            ]
            yield f"{name:<{first}}  {' '.join(signs)}".rstrip()


def _blocks(kinds: Sequence[str], first: int, width: int) -> Iterator[range]:
    """The columns that fit side by side, with the name of each."""
    start = 0
    while start < len(kinds):
        end = start + 1
        while end < len(kinds) and first + _GAP + _SIGN_COLUMN * (end - start) + 2 + len(kinds[end]) <= width:
            end += 1
        yield range(start, end)
        start = end


def _painted(text: str, mark: Mark | None, *, is_coloured: bool) -> str:
    """The text in the colour of a mark; not the blanks behind it."""
    if not is_coloured:
        return text
    plain = text.rstrip()
    return tinted(plain, "plain" if mark is None else tone_of(mark)) + " " * (len(text) - len(plain))


def _legend(table: CoverageTable, width: int, *, is_coloured: bool) -> Iterator[str]:
    entries: list[tuple[Mark | None, str]] = [
        (mark, f"{sign_of(mark)} {meaning_of(mark)}") for mark in _distinct(table.rows, table.columns)
    ]
    if any(kind.name not in row.marks for row in table.rows for kind in table.columns):
        entries.append((None, f"{_NOTHING} cannot happen here"))
    line, used = "", 0
    for mark, text in entries:
        if line and used + 3 + len(text) > width:
            yield line
            line, used = "", 0
        used += (3 if line else 0) + len(text)
        sign, _, meaning = text.partition(" ")
        line += ("   " if line else "") + f"{_painted(sign, mark, is_coloured=is_coloured)} {meaning}"
    if line:
        yield line


def _distinct(rows: Sequence[CoverageRow], columns: Sequence[FailureKind]) -> Iterator[Mark]:
    """One mark for each sign."""
    seen: set[str] = set()
    for mark in used_marks(rows, columns):
        if sign_of(mark) not in seen:
            seen.add(sign_of(mark))
            yield mark


def _left_out(table: CoverageTable) -> Iterator[str]:
    if table.folded:
        names = ", ".join(table.folded[:8]) + (" …" if len(table.folded) > 8 else "")
        yield f"{OTHERS}: the worst of {visible(names)}; --step STEP shows those of a step"
    if table.is_complete:
        return
    parts = []
    if table.hidden_failures:
        parts.append(f"{pluralize(table.hidden_failures, 'kind')} of failures that are dealt with")
    if table.hidden_steps:
        words = f"{pluralize(table.hidden_steps, 'step')}"
        parts.append(words if table.hidden_open_rows else f"{words} without a hole")
    yield f"not shown: {', '.join(parts)}; --all shows everything"


# -- all of it -------------------------------------------------------------------------------------------------------


def coverage_lines(
    coverage: Coverage,
    figures: Figures,
    *,
    file: str,
    source: str = "",
    width: int,
    is_coloured: bool = False,
    shows_all: bool = False,
) -> Iterator[str]:
    """Coverage as a terminal shows it. `source`: the text of the file, for the lines of the findings."""
    yield f"{visible(single_line(coverage.workflow))}: {describe_figures(figures)}"
    if coverage.cells:
        yield ""
    yield from table_lines(
        arrange_table(coverage, shows_all=shows_all, columns_max=COLUMNS_MAX), width, is_coloured=is_coloured
    )
    yield from _finding_lines(coverage.findings, file, source, is_coloured=is_coloured, shows_all=shows_all)
    yield from _pair_lines(coverage, shows_all=shows_all)
    yield ""
    yield from map(visible, _last_lines(coverage, figures, file, shows_all=shows_all))


def _finding_lines(
    findings: Sequence[Finding], file: str, source: str, *, is_coloured: bool, shows_all: bool
) -> Iterator[str]:
    left = [one for one in findings if not one.accepted]
    shown = left if shows_all else left[:FINDINGS_MAX]
    lines = source.splitlines()
    for one in shown:
        yield ""
        text = visible(finding_problem(one, file, lines).render())
        kind, colon, rest = text.partition(": ")
        yield f"{tinted(kind, 'try')}{colon}{rest}" if is_coloured else text
    if len(left) > len(shown):
        yield ""
        yield f"and {pluralize(len(left) - len(shown), 'further finding')}; --all shows them"


def finding_problem(finding: Finding, file: str, lines: Sequence[str]) -> Problem:
    """A finding in the form in which `validate` reports: with its line, and carets below the step if it is there."""
    where: dict[str, object] = {}
    if 0 < finding.line <= len(lines):
        line = lines[finding.line - 1]
        found = line.find(finding.step) if finding.step else -1
        start = found if found >= 0 else len(line) - len(line.lstrip())
        length = len(finding.step) if found >= 0 else max(1, len(line.strip()))
        where = {"line": finding.line, "column": start + 1, "length": length, "source_line": line}
    return Problem(f"warning.{finding.code}", finding.message, file=file, hint=finding.hint, **where)  # type: ignore[arg-type]


def _pair_lines(coverage: Coverage, *, shows_all: bool) -> Iterator[str]:
    """Failures of two steps that end worse together than each of them alone."""
    if not coverage.pairs:
        return
    kinds = {kind.name: kind for kind in coverage.failures}
    yield ""
    yield f"{pluralize(len(coverage.pairs), 'pair')} of failures end worse than each of the two alone:"
    shown = coverage.pairs if shows_all else coverage.pairs[:PAIRS_MAX]
    yield from (f"  {visible(describe_pair(case, kinds))}" for case in shown)
    if len(coverage.pairs) > len(shown):
        yield f"  and {len(coverage.pairs) - len(shown):,} more; --all shows them"


def _last_lines(coverage: Coverage, figures: Figures, file: str, *, shows_all: bool) -> Iterator[str]:
    kinds = {kind.name: kind for kind in coverage.failures}
    notes = coverage.unknown if shows_all else coverage.unknown[:NOTES_MAX]
    yield from (f"note: {single_line(one)}" for one in notes)
    if len(coverage.unknown) > len(notes):
        yield f"note: and {len(coverage.unknown) - len(notes):,} more; --all shows them"
    if figures.slowest is not None and figures.worst_seconds:
        cause = _cause(figures.slowest, kinds)
        yield f"worst case: {format_duration(figures.worst_seconds)} of delays and timeouts, if {cause}"
    if coverage.agent_costs is not None:
        yield f"cost: {describe_agent_costs(coverage.agent_costs)}"
        if coverage.agent_costs.limit is None:
            yield "  'budget: {cost: 5}' limits it, for a step or for the whole run"
    yield played_text(coverage)
    if hole := next((cell for cell in coverage.cells if is_open(cell)), None):
        yield f"the story of a cell: {story_command(coverage, file, hole.step, hole.failure)}"
    yield f"coverage: {figures.percent}%"


def _cause(case: Case, kinds: Mapping[str, FailureKind]) -> str:
    return describe_failure_of(case.step, kinds.get(case.failure) or FailureKind(case.failure, ""), case.times)


# -- one case --------------------------------------------------------------------------------------------------------


def case_story_lines(
    case: Case, kind: FailureKind, story: Sequence[StoryLine], *, is_coloured: bool = False
) -> Iterator[str]:
    """What happens in one case, as `explain` tells a run; the times are counted from its start."""
    yield visible(describe_failure_of(case.step, kind, case.times))
    story = fold_skipped(story)
    times = [time_in_story(line) for line in story]
    time_width = max(map(len, times), default=0)
    place_width = min(PLACE_CHARS_MAX, max((len(line.place or "end") for line in story), default=0))
    for time, line in zip(times, story, strict=True):
        text = visible(line.text)
        sentence = tinted(text, line.tone) if is_coloured else text
        yield f"  {time:>{time_width}}  {visible(line.place or 'end'):<{place_width}}  {sentence}"
    yield describe_case(case)
