"""Coverage as HTML: the heat map, the findings and the stories of its cells; parts of a page, and a whole page.

The whole page needs no script and asks for nothing elsewhere: a cell is a link to its story, which the style sheet
shows only while it is the target of the address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mulligan.analysis.coverage.figures import Figures, count_figures, describe_figures, is_open
from mulligan.analysis.coverage.results import VERDICTS, Case, Cell, Coverage, FailureKind, Finding
from mulligan.analysis.coverage.table import CoverageRow, CoverageTable, Mark, arrange_table, steps_label, used_marks
from mulligan.analysis.coverage.words import (
    TIMES_WORDS,
    VERDICT_WORDS,
    describe_case,
    describe_failure_of,
    describe_pair,
    fold_skipped,
    format_cost_limit,
    meaning_of,
    played_text,
    sign_of,
    story_command,
    time_in_story,
    tone_of,
)
from mulligan.core.model.text.formatting import format_duration, pluralize
from mulligan.history.story import StoryLine
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import whole_page

# So many cells have their story in the page, those that are not dealt with first; so many rows, findings
# and pairs of failures.
STORIES_MAX, ROWS_MAX, FINDINGS_MAX, PAIRS_MAX = 400, 500, 200, 50
# A story of a large workflow takes long to play: for all stories together, so many steps.
STORY_STEPS_MAX = 60_000
# So many lines of a story are shown: its beginning and its end.
LINES_MAX = 60
# A tone of the terminal as one of the page.
_TONES = {"good": "good", "bad": "bad", "wait": "ask", "try": "try", "plain": "idle"}

# How a case goes, line by line.
StoryOfCase = Callable[[Case], Sequence[StoryLine]]
# Where a cell leads, and the id that it has; None if it leads nowhere.
CellLink = Callable[[CoverageRow, FailureKind], tuple[str, str] | None]


# -- parts of a page -------------------------------------------------------------------------------------------------


def render_figures(figures: Figures) -> Html:
    """The figures as tiles, and all cells as one bar."""
    tone = "good" if figures.reaches(100) else "bad" if figures.verdicts.keys() & {"fails", "stops"} else "ask"
    shown: list[tuple[str, object, str]] = [("dealt with or accepted", f"{figures.percent}%", tone)]
    shown += [
        (VERDICT_WORDS[verdict].meaning, f"{figures.verdicts[verdict]:,}", _TONES[VERDICT_WORDS[verdict].tone])
        for verdict in VERDICTS
        if verdict in figures.verdicts
    ]
    if figures.worst_seconds:
        shown.append(("delays and timeouts, worst case", format_duration(figures.worst_seconds), ""))
    if figures.agent_costs is not None:
        limit = figures.agent_costs.limit
        shown.append(("limit for agents", "none" if limit is None else format_cost_limit(limit), ""))
    counts = [(f"{_TONES[VERDICT_WORDS[one].tone]} of-{one}", number) for one, number in figures.verdicts.items()]
    return join_html([ui.tiles(shown, "tiles coverage-tiles"), ui.stacked_bar(counts, describe_figures(figures))])


def render_heat_map(table: CoverageTable, link: CellLink, *, chosen: tuple[str, str] | None = None) -> Html:
    """The table of steps and failures. `chosen`: the step and the failure whose story is shown beside it."""
    heads = [element("th", element("span", kind.name), scope="col", title=kind.name) for kind in table.columns]
    corner = element("td", element("p", "Choose a cell to read what happens."), class_="corner")
    head = element("thead", element("tr", corner, *heads))
    rows = [_row(row, table.columns, link, chosen) for row in table.rows]
    label = "Steps and failures"
    inner = element("table", head, element("tbody", *rows), class_="heat", aria_label=label)
    return element("div", inner, class_="scroll heat-scroll", tabindex="0", role="region", aria_label=label)


def _row(row: CoverageRow, columns: Sequence[FailureKind], link: CellLink, chosen: tuple[str, str] | None) -> Html:
    cells = [_cell(row, kind, link, is_chosen=chosen == (row.steps[0], kind.name)) for kind in columns]
    title = ", ".join(islice(row.steps, 20)) if len(row.steps) > 1 else None
    return element("tr", element("th", element("span", steps_label(row.steps)), scope="row", title=title), *cells)


def _cell(row: CoverageRow, kind: FailureKind, link: CellLink, *, is_chosen: bool) -> Html:
    mark = row.marks.get(kind.name)
    if mark is None:
        said = "cannot happen here"
        return element("td", element("span", "·", title=said, aria_label=said), class_="none")
    cell = row.cells[kind.name]
    said = f"{steps_label(row.steps)}, {kind.name}: {meaning_of(mark)}"
    if cell.accepted:
        said += f" ({cell.accepted})"
    target = link(row, kind)
    if target is None:
        return element("td", element("span", sign_of(mark), title=said, aria_label=said), class_=_kinds(mark))
    href, name = target
    about = {"title": said, "aria_label": said, "aria_current": "true" if is_chosen else None}
    return element("td", element("a", sign_of(mark), href=href, id=name or None, **about), class_=_kinds(mark))


def _kinds(mark: Mark) -> str:
    return f"{_TONES[tone_of(mark)]} of-{'accepted' if mark.is_accepted else mark.verdict}"


def render_legend(table: CoverageTable) -> Html:
    """What the signs mean."""
    entries: dict[str, Html] = {}
    for mark in used_marks(table.rows, table.columns):
        sign = sign_of(mark)
        entries.setdefault(sign, element("li", element("b", sign, class_=_kinds(mark)), meaning_of(mark)))
    return element("ul", *entries.values(), class_="coverage-legend", aria_label="Legend")


def render_findings(findings: Sequence[Finding], where: Callable[[Finding], object]) -> Html:
    """What the author would want to know. `where`: where it stands in the file, or a link to that."""
    left = [one for one in findings if not one.accepted]
    if not left:
        return ui.note("No findings besides the table.")
    items = [
        join_html(
            [
                element("p", one.message),
                element("p", one.hint, class_="hint") if one.hint else "",
                element("p", where(one), " ", element("code", one.code), class_="at"),
            ]
        )
        for one in left[:FINDINGS_MAX]
    ]
    further = len(left) - len(items)
    more = ui.note(f"And {pluralize(further, 'further finding')}.") if further else ""
    return join_html([ui.bullets(items, "findings"), more])


def render_pairs(coverage: Coverage) -> Html:
    """Failures of two steps that end worse together than each of them alone; nothing if there are none."""
    if not coverage.pairs:
        return Html("")
    kinds = {kind.name: kind for kind in coverage.failures}
    items = [describe_pair(case, kinds) for case in coverage.pairs[:PAIRS_MAX]]
    if len(coverage.pairs) > len(items):
        items.append(f"and {len(coverage.pairs) - len(items):,} more")
    title = f"{pluralize(len(coverage.pairs), 'pair')} of failures end worse than each of the two alone:"
    return join_html([element("p", title), ui.bullets(items)])


def render_story(case: Case, story: Sequence[StoryLine]) -> Html:
    """What happens in one case, in the words of `explain`, with times from its start."""
    lines = list(_story_rows(fold_skipped(story)))
    table = element("div", element("table", element("tbody", *lines), class_="story"), class_="scroll", tabindex="0")
    ends = element("p", describe_case(case), class_=f"ends {_TONES[VERDICT_WORDS[case.verdict].tone]}")
    return join_html([table if lines else "", ends])


def _story_rows(story: Sequence[StoryLine]) -> Iterator[Html]:
    half = LINES_MAX // 2
    for number, line in enumerate(story):
        if len(story) > LINES_MAX and number == half:
            left = f"{len(story) - 2 * half:,} lines are left out"
            yield element("tr", element("td"), element("td", "…"), element("td", left), class_="idle")
        if len(story) > LINES_MAX and half <= number < len(story) - half:
            continue
        yield element(
            "tr",
            element("td", time_in_story(line), class_="time"),
            element("td", element("code", line.place or "end")),
            element("td", line.text),
            class_=_TONES[line.tone],
        )


def _other_cases(cell: Cell, shown: Case) -> Html:
    others = [case for case in cell.cases if case is not shown and not case.with_step]
    if not others:
        return Html("")
    items = [
        element(
            "li",
            f"{TIMES_WORDS[case.times]}: ",
            element("b", VERDICT_WORDS[case.verdict].sign, class_=_TONES[VERDICT_WORDS[case.verdict].tone]),
            " ",
            describe_case(case),
        )
        for case in others
    ]
    return element("div", element("h4", "If it happens"), element("ul", *items), class_="other-cases")


def worst_case(cell: Cell) -> Case:
    """The case that a cell stands for."""
    alone = [case for case in cell.cases if not case.with_step and case.verdict == cell.verdict]
    return (alone or list(cell.cases))[-1]


# -- the whole page --------------------------------------------------------------------------------------------------


def render_coverage_page(coverage: Coverage, story_of: StoryOfCase, *, file: str, made_by: str) -> str:
    """Coverage as one page that needs nothing else."""
    figures = count_figures(coverage)
    table = arrange_table(coverage, shows_all=True)
    rows = table.rows[:ROWS_MAX]
    chosen_cells = _cells_with_story(rows, table.columns, len(coverage.steps))
    stories = [
        _panel(number, row, kind, coverage, story_of, len(chosen_cells))
        for number, (row, kind) in enumerate(chosen_cells, start=1)
    ]
    numbers = {(row.steps[0], kind.name): number for number, (row, kind) in enumerate(chosen_cells, start=1)}

    def link(row: CoverageRow, kind: FailureKind) -> tuple[str, str] | None:
        number = numbers.get((row.steps[0], kind.name))
        return (f"#story-{number}", f"cell-{number}") if number else None

    shown = CoverageTable(table.columns, rows)

    def place(one: Finding) -> str:
        return f"{file}:{one.line}" if one.line else file

    sections = [
        ui.section("What happens when a step fails", "table", *_table_section(shown, table, link)),
        # The file of a program is not searched for any.
        ui.section("Findings", "findings", render_findings(coverage.findings, place))
        if coverage.findings or not coverage.called_at
        else "",
        ui.section("Two failures in one run", "pairs", pairs) if (pairs := render_pairs(coverage)) else "",
        ui.section("How this was played", "played", *_played(coverage, table, len(chosen_cells), file)),
    ]
    top = element(
        "header",
        element("p", "Recovery coverage", class_="over"),
        element("h1", coverage.workflow),
        element("p", f"{describe_figures(figures)}.", class_="sentence"),
    )
    footer = element("footer", element("p", f"{file}. Written by {made_by}."))
    main = element("main", top, render_figures(figures), *sections, footer)
    title = f"{coverage.workflow}: {figures.percent}% recovery coverage"
    return whole_page(title, ("charts.css", "page.css", "coverage.css"), main, *stories)


def _cells_with_story(
    rows: Sequence[CoverageRow], columns: Sequence[FailureKind], steps: int
) -> list[tuple[CoverageRow, FailureKind]]:
    """The cells whose story is in the page, in the order of the table; what is not dealt with is chosen first."""
    cells = [(row, kind) for row in rows for kind in columns if kind.name in row.cells]
    stories_max = min(STORIES_MAX, STORY_STEPS_MAX // max(1, steps))
    if len(cells) <= stories_max:
        return cells
    wanted = sorted(cells, key=lambda one: not is_open(one[0].cells[one[1].name]))[:stories_max]
    chosen = {(row.steps[0], kind.name) for row, kind in wanted}
    return [(row, kind) for row, kind in cells if (row.steps[0], kind.name) in chosen]


def _panel(
    number: int, row: CoverageRow, kind: FailureKind, coverage: Coverage, story_of: StoryOfCase, count: int
) -> Html:
    cell = row.cells[kind.name]
    case = worst_case(cell)
    step = row.steps[0]
    links = [element("a", "Close", href=f"#cell-{number}", class_="close")]
    if number > 1:
        links.insert(0, element("a", "Before", href=f"#story-{number - 1}"))
    if number < count:
        links.insert(-1, element("a", "Next", href=f"#story-{number + 1}"))
    also = ""
    if len(row.steps) > 1:
        also = ui.note(f"The same happens to {pluralize(len(row.steps) - 1, 'other step')}.")
    title = element("h3", describe_failure_of(step, kind, case.times), id=f"title-{number}")
    return element(
        "aside",
        element("nav", *links, aria_label="Stories"),
        title,
        also,
        ui.note(f"Accepted: {cell.accepted}") if cell.accepted else "",
        render_story(case, story_of(case)),
        _other_cases(cell, case),
        class_="case",
        id=f"story-{number}",
        tabindex="-1",
        aria_labelledby=f"title-{number}",
    )


def _table_section(shown: CoverageTable, table: CoverageTable, link: CellLink) -> Iterator[Html]:
    if not shown.rows:
        yield ui.note("There is no step that could fail.")
        return
    yield render_legend(shown)
    yield render_heat_map(shown, link)
    if left := len(table.rows) - len(shown.rows):
        yield ui.note(f"{left:,} rows are left out, those in which the least is wrong.")


def _played(coverage: Coverage, table: CoverageTable, stories: int, file: str) -> Iterator[Html]:
    cases = "the failure happens once, twice, and every time until nothing is left to try"
    yield element("p", f"{played_text(coverage)}. Each cell is the worst of three cases: {cases}.")
    total = sum(len(row.cells) for row in table.rows)
    if stories < total:
        command = story_command(coverage, file, "STEP", "FAILURE")
        yield element(
            "p",
            f"{stories:,} of {total:,} cells have their story here, those that are not dealt with first. The others: ",
            element("code", command),
        )
    if coverage.unknown:
        yield element("p", "What could not be played:")
        yield ui.bullets(coverage.unknown[:100])
