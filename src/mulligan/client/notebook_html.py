"""Runs, lists of runs and stories as HTML for the output of a notebook's cell.

A notebook has one page, one theme and no patience: no scripts, no files from elsewhere, styles only for our own
elements, colours made from that of the text, and a bounded number of rows however large a run is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from mulligan.core.model.workflow import Workflow
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.history.route_outcomes import FailureOutcome
from mulligan.history.views import Wait
from mulligan.service.authoring.area import Workflows
from mulligan.service.driving.run_progress import Activity, RunProgress
from mulligan.service.rendering.descriptions import describe_artifact, summarize_failure
from mulligan.service.rendering.formatting import (
    ATTENTION,
    UNDO_FAILED,
    group_counts,
    group_title,
    pluralize,
    single_line,
    up_to_date_since,
)
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, status_label, status_tone
from mulligan.service.runs.views.failure_summary import FailureLine
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.runs.views.run_story import LocatedLine, LocatedWait
from mulligan.service.runs.views.run_view import CalledRunView, MatrixView, RunView, StepView
from mulligan.service.service import Service

# How many steps, failed items, questions, outputs, runs and lines of a story are shown.
STEPS_MAX, ITEMS_MAX, ASKS_MAX, OUTPUTS_MAX, RUNS_MAX, LINES_MAX = 50, 3, 10, 20, 200, 500
# A graph with more nodes is left out: it could not be read. One of more steps is not even laid out.
NODES_MAX, DRAWN_STEPS_MAX = 60, 5_000
# How many activities of a large run.
ACTIVITIES_MAX = 12
# How much of one text is shown.
TEXT_CHARS_MAX, VALUE_CHARS_MAX = 300, 500
# A graph of this width stands below the table; one that is wider than the second is not made smaller.
WIDE_PIXELS, VAST_PIXELS = 640, 1400
# The steps of a matrix with more of them share one row.
MATRIX_STEPS_MAX = 8
_PEOPLE = ("triage", "approval", "pause", "step_pause")
# What a step waits for that is worth a sentence in its row. Needs and edges are in the graph.
_REPORTED_WAITS = ("retry", "timer", "breaker", "loop", "repair", "limit")
_OUTCOME_TONES = {
    FailureOutcome.UNHANDLED: "bad",
    FailureOutcome.ALLOWED: "idle",
    FailureOutcome.IN_PROGRESS: "try",
    FailureOutcome.REPAIRED: "good",
}


class Ask(NamedTuple):
    """Something that a person is asked: in which run, where, what; and the call of a method of the run that answers."""

    run_id: int
    where: str
    text: str
    call: str


class _Row(NamedTuple):
    name: str
    status: str
    tries: int
    seconds: float | None
    remark: Html
    steps_count: int = 1
    is_inner: bool = False
    # In place of those of the status.
    tone: str = ""
    label: str = ""


# -- a run -----------------------------------------------------------------------------------------------------------


def render_run(
    run: RunView,
    failures: Sequence[FailureLine] = (),
    graph: str = "",
    *,
    note: str = "",
    home: str = "mulligan.open()",
    now: datetime | None = None,
) -> str:
    """A run: its status, its steps, what waits for a person, its outputs and its graph.

    `run`: as `Service.overview` gives it. `failures`: how each failure was handled. `graph`: the SVG of its workflow.
    `note`: a sentence below, such as why there is no graph. `home`: the Python that opens the home of the run.
    """
    now = now or datetime.now(UTC)
    outputs = run.outputs if run.status in RUN_ENDED else {}
    parts = [
        _headline(run, now),
        _gauge(step_counts(run)) if run.status not in RUN_ENDED else "",
        _asks(asks_of(run), home, run.run_id),
        element("div", _steps(run, failures, now), _graph(graph), class_="mulligan-body"),
        _outputs(outputs),
        _note(note),
    ]
    return _framed(join_html(parts))


def _framed(content: Html) -> str:
    return element("div", element("style", Html(_style())), content, class_="mulligan-run")


def _note(text: str) -> Html | str:
    return element("p", text, class_="mulligan-note") if text else ""


def _graph(svg: str) -> Html | str:
    """The graph beside the table; below it if it is wide, and in a part that scrolls if it is wider still."""
    found = _WIDTH.search(svg)
    if found is None:
        return ""
    width = int(found[1])
    size = "mulligan-vast" if width > VAST_PIXELS else "mulligan-wide" if width > WIDE_PIXELS else ""
    return element("div", Html(svg), class_=f"mulligan-figure {size}".rstrip())


_WIDTH = re.compile(r'\A<svg [^>]*?width="(\d+)"')


def _headline(run: RunView, now: datetime) -> Html:
    is_over = run.status in RUN_ENDED
    begun, last = (datetime.fromisoformat(getattr(run, key)) for key in ("created_at", "updated_at"))
    seconds = max(0.0, ((last if is_over else now) - begun).total_seconds())
    facts = [f"run {run.run_id}", format_elapsed(seconds), _counted(step_counts(run))]
    facts += [f"round {run.round}"] if run.round > 1 else []
    facts += [f"child of run {run.parent_run_id}"] if run.parent_run_id is not None else []
    facts += [_cut(single_line(run.reason))] if run.reason else []
    degraded = " (degraded)" if run.degraded else ""
    if not is_over and asks_of(run):
        return _head(run.workflow, "paused", "waits for a person", facts)
    return _head(run.workflow, run.status, f"{status_label(run.status)}{degraded}", facts)


def _head(workflow: str, status: str, word: str, facts: Sequence[str]) -> Html:
    dim = element("span", " · ".join(facts), class_="mulligan-dim")
    return element("div", element("strong", workflow), _status(status, word), dim, class_="mulligan-head")


def _counted(counts: Counter[str]) -> str:
    """`12 steps, 1 failed`: how many there are, and those that did not complete."""
    odd = {status: counts[status] for status in ("failed", "pending_failed", "skipped", "cancelled") if counts[status]}
    return ", ".join(filter(None, (pluralize(sum(counts.values()), "step"), group_counts(odd))))


def step_counts(run: RunView) -> Counter[str]:
    """How many steps are in each status."""
    return Counter(step.status for step in run.steps.values())


def _gauge(counts: Counter[str]) -> Html | str:
    """How far a run is: a thin bar."""
    total = sum(counts.values())
    if not total:
        return ""
    done = counts["completed"] + counts["skipped"] + counts["cancelled"]
    parts = (("good", done), ("bad", counts["failed"]), ("now", counts["running"] + counts["handling"]))
    bars = [element("i", style=f"width:{100 * n / total:.2f}%", class_=f"mulligan-{tone}") for tone, n in parts if n]
    text = f"{done + counts['failed']:,} of {total:,} steps ended"
    return element("div", *bars, class_="mulligan-gauge", role="img", aria_label=text, title=text)


def _status(status: str, word: str) -> Html:
    return element("span", word, class_=f"mulligan-status mulligan-{status_tone(status)}")


# -- its steps -------------------------------------------------------------------------------------------------------


def _steps(run: RunView, failures: Sequence[FailureLine], now: datetime) -> Html | str:
    rows = list(_rows(run, failures, now))
    shown = _most_interesting(rows)
    left: Counter[str] = Counter()
    for row, sign in (*((row, 1) for row in rows), *((row, -1) for row in shown)):
        left[row.status] += sign * row.steps_count
    hidden = sum(left.values())
    more = f"and {hidden:,} more: {group_counts(left)}" if hidden else ""
    if not shown:
        return _note(more)
    has_tries = any(row.tries > 1 for row in shown)
    heads = ["step", "status", *(["attempts"] if has_tries else []), "time"]
    body = [part for row in shown for part in _row(row, len(heads), has_tries=has_tries)]
    if more:
        body.append(element("tr", element("td", more, colspan=len(heads), class_="mulligan-dim")))
    head = element("thead", element("tr", *(_cell("th", word, word) for word in heads)))
    return _table(head, element("tbody", *body))


def _table(*inside: object, kind: str = "") -> Html:
    return element("div", element("table", *inside), class_=f"mulligan-steps {kind}".rstrip())


def _cell(name: str, content: object, column: str) -> Html:
    is_number = column in ("attempts", "time")
    return element(name, content, class_="mulligan-number" if is_number else None)


def _row(row: _Row, columns: int, *, has_tries: bool) -> Iterator[Html]:
    """A step; and below it, over the whole width, what there is to say about it."""
    inner = " mulligan-inner" if row.is_inner else ""
    cells = [
        element("td", row.name, class_=f"mulligan-name{inner}"),
        element("td", _status(row.tone or row.status, row.label or status_label(row.status))),
    ]
    cells += [_cell("td", f"{row.tries:,}" if row.tries else "", "attempts")] if has_tries else []
    cells.append(_cell("td", "" if row.seconds is None else format_elapsed(row.seconds), "time"))
    yield element("tr", *cells)
    if row.remark:
        yield element("tr", element("td", row.remark, colspan=columns, class_=f"mulligan-remark{inner}"))


def _most_interesting(rows: list[_Row]) -> list[_Row]:
    """As many rows as there is room for, in the order of the file: failed and running ones are chosen first."""
    if len(rows) <= STEPS_MAX:
        return rows
    rank = {status: index for index, status in enumerate(ATTENTION)}
    order = sorted(range(len(rows)), key=lambda index: (rank.get(rows[index].status, len(rank)), index))
    wanted = [index for index in order if rows[index].status in rank or rows[index].remark]
    return [rows[index] for index in sorted((wanted or order)[:STEPS_MAX])]


def _rows(run: RunView, failures: Sequence[FailureLine], now: datetime) -> Iterator[_Row]:
    by_step: dict[str, list[FailureLine]] = {}
    for one in failures:
        by_step.setdefault(one.step, []).append(one)
    large = {name: group for name, group in run.matrices.items() if len(group.combinations) > MATRIX_STEPS_MAX}
    matrix_of = {member: name for name, group in large.items() for member in group.combinations}
    shown: set[str] = set()
    for name, step in run.steps.items():
        matrix = matrix_of.get(name, "")
        if matrix and matrix not in shown:
            shown.add(matrix)
            yield from _matrix_rows(matrix, large[matrix], run, by_step, now)
        elif not matrix:
            yield _step_row(name, step, by_step.get(name, ()), now)
    if (end := run.end) is not None and (end.attempts or end.failure):
        yield _step_row("end", end, by_step.get("end", ()), now)._replace(steps_count=0)


def _matrix_rows(
    name: str, group: MatrixView, run: RunView, by_step: Mapping[str, Sequence[FailureLine]], now: datetime
) -> Iterator[_Row]:
    """One row for all steps of a matrix that went well, and below it one for each that did not."""
    rank = {status: index for index, status in enumerate(ATTENTION)}
    names = sorted(
        (member for member in group.combinations if run.steps[member].status in rank),
        key=lambda member: rank[run.steps[member].status],
    )[:MATRIX_STEPS_MAX]
    seconds = group.usage.wall_seconds if group.usage else None
    title, count = group_title(name, len(group.combinations)), len(group.combinations)
    counts = element("span", group_counts(group.statuses), class_="mulligan-dim")
    yield _Row(title, group.status, group.attempts, seconds, counts, count - len(names))
    for member in names:
        yield _step_row(member, run.steps[member], by_step.get(member, ()), now)._replace(is_inner=True)


def _step_row(name: str, step: StepView, failures: Sequence[FailureLine], now: datetime) -> _Row:
    seconds: float | None = step.usage.wall_seconds if step.usage else None
    if step.status == "running" and (began := _began(step)) is not None:
        seconds = (seconds or 0.0) + max(0.0, (now - began).total_seconds())
    remark = join_html(element("div", part) for part in _remarks(name, step, failures))
    row = _Row(name, step.status, step.attempts, seconds, remark)
    is_asked = any(wait.kind in _PEOPLE for wait in step.waiting_for) and step.status != "pending_failed"
    return row._replace(tone="paused", label="waits for a person") if is_asked else row


def _began(step: StepView) -> datetime | None:
    """When the attempt that runs now has begun."""
    running = [one.started_at for one in step.tries or () if one.status == "running" and one.started_at]
    return min(running) if running else None


def _remarks(name: str, step: StepView, failures: Sequence[FailureLine]) -> Iterator[object]:
    """What there is to say about a step, the most important first, one line each."""
    if bar := _progress(step):
        yield bar
    own = [one for one in failures if not one.is_item]
    yield from (_failure(one.what, one, "ask" if step.status == "pending_failed" else "") for one in own)
    if not failures and step.failure:
        yield _failure_text(summarize_failure(step.failure))
    if step.items:
        yield _items(step.items)
    yield from _failed_items(name, [one for one in failures if one.is_item])
    # What led to another visit is said already.
    words = [f"visit {step.visits}"] if step.visits > 1 and not own else []
    words += _words(step)
    if words:
        yield element("span", "; ".join(words), class_="mulligan-dim")


def _failed_items(name: str, failures: Iterable[FailureLine]) -> Iterator[Html]:
    """The failed items, those that failed alike in one line."""
    alike: dict[tuple[str, str], list[FailureLine]] = {}
    for one in failures:
        alike.setdefault((one.what, one.answer), []).append(one)
    groups = list(alike.values())
    for group in groups[:ITEMS_MAX]:
        whose = f"{len(group):,} items" if len(group) > 1 else group[0].name.removeprefix(name)
        yield join_html((element("span", f"{whose} ", class_="mulligan-dim"), _failure(group[0].what, group[0])))
    if hidden := sum(map(len, groups[ITEMS_MAX:])):
        yield element("span", f"and {pluralize(hidden, 'more failed item')}", class_="mulligan-dim")


def _failure(what: str, one: FailureLine, tone: str = "") -> Html:
    """`EXIT_NONZERO 75: no route → retried, then completed`."""
    kind = tone or _OUTCOME_TONES[one.outcome]
    answer = element("span", single_line(one.answer), class_=f"mulligan-answer mulligan-{kind}")
    return join_html((_failure_text(what), Html(" → "), answer))


def _failure_text(text: str) -> Html:
    return element("span", _cut(text), title=text if len(text) > TEXT_CHARS_MAX else None)


def _words(step: StepView) -> Iterator[str]:
    if step.up_to_date_since:
        yield up_to_date_since(step.up_to_date_since)
    if step.faked:
        yield "faked"
    if step.undone:
        yield "undone"
    if step.undo_failed:
        yield UNDO_FAILED
    if step.children:
        first, last, count = step.children[0], step.children[-1], len(step.children)
        yield f"run {first}" if count == 1 else f"{count:,} runs: {first} to {last}"
    for warning in step.warnings:
        yield f"warning: {_cut(summarize_failure(warning))}"
    waits = (wait for wait in step.waiting_for if wait.kind in _REPORTED_WAITS or wait.obstacles)
    yield from dict.fromkeys(f"waits for {_cut(single_line(wait.text))}" for wait in waits)


def _items(counts: Mapping[str, int]) -> Html:
    parts = [f"{counts['completed']:,} of {pluralize(counts['total'], 'item')} done"]
    parts += [f"{counts[status]:,} {status}" for status in ("failed", "running", "cancelled") if counts[status]]
    return element("span", ", ".join(parts), class_="mulligan-dim")


def _progress(step: StepView) -> Html | None:
    """What the step itself says about its progress while it runs."""
    said = step.progress
    if not said or step.status != "running":
        return None
    return _bar(said.done, said.total, said.text)


def _bar(done: float | None, total: float | None, text: str) -> Html:
    """How far something is: a bar if it has an end, the figures, and its words."""
    bar: Html | str = ""
    figures = "" if done is None else f"{done:,}"
    if done is not None and total:
        bar = element("progress", max=100, value=f"{min(100.0, max(0.0, 100 * done / total)):.1f}")
        figures = f"{done:.0%}" if total == 1 else f"{figures} of {total:,}"
    words = " ".join(filter(None, (figures, _cut(single_line(text)))))
    return join_html((bar, element("span", f" {words}", class_="mulligan-dim")))


# -- a large run while it is driven ----------------------------------------------------------------------------------


def render_progress(
    progress: RunProgress, workflow: str, seconds: float, *, note: str = "", now: datetime | None = None
) -> str:
    """A run while it is driven, if it is too large to be read from the store so often: counts, and what runs now."""
    now = now or datetime.now(UTC)
    counts = Counter(progress.counts)
    found = list(progress.activities(ACTIVITIES_MAX + 1))
    facts = [f"run {progress.run_id}", format_elapsed(seconds), _counted(counts)]
    rows = [
        element(
            "tr",
            element("td", one.where, class_="mulligan-name"),
            element("td", _status(*_ACTIVITY_LOOKS.get(one.kind, ("running", one.kind)))),
            _cell("td", format_elapsed(max(0.0, (now - one.since).total_seconds())), "time"),
            element("td", _activity_text(one)),
        )
        for one in found[:ACTIVITIES_MAX]
    ]
    if len(found) > ACTIVITIES_MAX:
        rows.append(element("tr", element("td", "and more", colspan=4, class_="mulligan-dim")))
    table = _table(element("tbody", *rows)) if rows else ""
    head = _head(workflow, "running", "running", facts)
    return _framed(join_html((head, _gauge(counts), element("div", table, class_="mulligan-body"), _note(note))))


def _activity_text(one: Activity) -> Html:
    if one.progress is not None:
        return _bar(one.progress.done, one.progress.total, one.progress.text)
    return element("span", _cut(one.text), class_="mulligan-dim")


# What runs or waits now: the status whose colour it has, and its word.
_ACTIVITY_LOOKS = {
    "timer": ("waiting", "waits"),
    "retry": ("backing_off", "waiting to retry"),
    "parked": ("pending_failed", "parked"),
    "approval": ("paused", "waits for a person"),
    "breaker": ("backing_off", "waits for a breaker"),
    "queued": ("ready", "queued"),
    **dict.fromkeys(("running", "items", "child"), ("running", "running")),
}


# -- what a person is asked, and what came out -----------------------------------------------------------------------


def asks_of(run: RunView | CalledRunView, above: str = "") -> list[Ask]:
    """What a run and the runs that it called ask a person, and the Python that answers."""
    run_id = run.run_id
    found = [
        Ask(run_id, f"{above}{wait.shown_place}".rstrip("/"), _cut(single_line(wait.text)), _call(wait))
        for wait in run.waiting_for
        if wait.kind in _PEOPLE
    ]
    for child in run.children:
        found += asks_of(child, f"{above}{child.step_name}/")
    return found


def _call(wait: Wait) -> str:
    kind, place = wait.kind, wait.shown_place
    if kind == "triage":
        return f"classify({place!r}, 'retry', reason='…')  # or 'fail'"
    if kind == "approval":
        return f"approve({place!r}, reason='…')"
    return f"resume({wait.steps[0]!r})" if kind == "step_pause" else "resume()"


def _asks(asks: Sequence[Ask], home: str, run_id: int) -> Html | str:
    if not asks:
        return ""
    lines = []
    for one in asks[:ASKS_MAX]:
        run = "run" if one.run_id == run_id else f"{home}.get({one.run_id})"
        code = element("code", f"{run}.{one.call}")
        where = element("b", one.where) if one.where else "the run"
        lines.append(element("li", where, " waits for ", one.text, " ", code, class_="mulligan-ask"))
    if len(asks) > ASKS_MAX:
        lines.append(element("li", f"and {len(asks) - ASKS_MAX:,} more: ", element("code", "run.pending")))
    return element("ul", *lines, class_="mulligan-asks")


def _outputs(outputs: Mapping[str, Any]) -> Html | str:
    if not outputs:
        return ""
    rows: list[Html] = []
    for name, value in list(outputs.items())[:OUTPUTS_MAX]:
        rows += [element("dt", name), element("dd", element("code", _value(value)))]
    if len(outputs) > OUTPUTS_MAX:
        rows.append(element("dd", f"and {len(outputs) - OUTPUTS_MAX:,} more", class_="mulligan-dim"))
    return element("dl", *rows, class_="mulligan-outputs")


def _value(value: Any) -> str:
    text = describe_artifact(value) or json.dumps(value, ensure_ascii=False, default=str)
    return _cut(text, VALUE_CHARS_MAX)


def _cut(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


# -- a list of runs, a story, a workflow -----------------------------------------------------------------------------


def render_runs(runs: Sequence[RunLine]) -> str:
    """A list of runs: how each stands, and why."""
    if not runs:
        return _framed(element("p", "no runs", class_="mulligan-note"))
    heads = ("run", "workflow", "status", "started", "time", "")
    body = [
        element(
            "tr",
            _cell("td", run.run_id, "time"),
            element("td", run.workflow, class_="mulligan-name"),
            element("td", _list_status(run)),
            element("td", f"{run.created_at.astimezone():%Y-%m-%d %H:%M}", class_="mulligan-dim mulligan-time"),
            _cell("td", format_elapsed(run.seconds), "time"),
            element("td", _cut("; ".join(_notes(run)))),
        )
        for run in runs[:RUNS_MAX]
    ]
    if len(runs) > RUNS_MAX:
        text = f"and {len(runs) - RUNS_MAX:,} more"
        body.append(element("tr", element("td", text, colspan=len(heads), class_="mulligan-dim")))
    head = element("thead", element("tr", *(_cell("th", word, "time" if word == "run" else word) for word in heads)))
    return _framed(_table(head, element("tbody", *body)))


def _list_status(run: RunLine) -> Html:
    if run.asks and run.status not in RUN_ENDED:
        return _status("paused", "waits for a person")
    return _status(run.status, status_label(run.status) + (" (degraded)" if run.degraded else ""))


def _notes(run: RunLine) -> Iterator[str]:
    if run.failure is not None:
        more = f" (and {run.failure.count - 1:,} more)" if run.failure.count > 1 else ""
        yield f"'{run.failure.step}' failed with {single_line(run.failure.text)}{more}"
    for wait in run.waiting_for[:2]:
        yield single_line(wait.text)
    if run.reason:
        yield single_line(run.reason)


def render_story(lines: Iterable[LocatedLine], waits: Iterable[LocatedWait] = ()) -> str:
    """The story of a run, as `explain` tells it, and what it waits for."""
    rows: list[Html] = []
    left = 0
    for one in lines:
        if len(rows) == LINES_MAX:
            left += 1
            continue
        tail = element("pre", "\n".join(one.line.tail)) if one.line.tail else ""
        tone = _STORY_TONES.get(one.line.tone, "idle")
        at = element("td", f"{one.line.at.astimezone():%H:%M:%S}", class_="mulligan-dim mulligan-time")
        text = element("span", one.line.text, class_=f"mulligan-answer mulligan-{tone}")
        rows.append(element("tr", at, element("td", one.where, class_="mulligan-name"), element("td", text, tail)))
    if left:
        rows.append(element("tr", element("td", f"and {left:,} more lines", colspan=3, class_="mulligan-dim")))
    for wait in waits:
        what = f"waits for {single_line(wait.wait.text)}"
        asked = element("span", what, class_="mulligan-answer mulligan-ask")
        rows.append(
            element("tr", element("td"), element("td", wait.where, class_="mulligan-name"), element("td", asked))
        )
    return _framed(_table(element("tbody", *rows), kind="mulligan-story"))


_STORY_TONES = {"good": "good", "bad": "bad", "try": "try", "wait": "ask", "plain": "plain"}


def render_workflow(name: str, steps_count: int, graph: str, *, note: str = "") -> str:
    """A workflow: its name and its graph."""
    facts = element("span", pluralize(steps_count, "step"), class_="mulligan-dim")
    head = element("div", element("strong", name), facts, class_="mulligan-head")
    return _framed(join_html((head, _graph(graph), _note(note))))


# -- read from the store ---------------------------------------------------------------------------------------------


def run_html(service: Service, run_id: int, note: str = "", *, home: str = "mulligan.open()") -> str:
    """A run as it is now. `note`: a sentence below; `home`: the Python that opens its home."""
    run = service.runs.overview(run_id, with_attempts=True)
    graph, why_not = _draw(*service.runs.drawn(run_id))
    if not note and run.status == "running" and run.driver is None:
        note = f"nothing is running it; to continue it: {home}.get({run_id}).resume()"
    notes = "; ".join(filter(None, (note, why_not)))
    return render_run(run, service.runs.failure_outcomes(run_id), graph, note=notes, home=home)


def workflow_html(workflow: Workflow) -> str:
    """A workflow: its graph."""
    graph, why_not = _draw(workflow)
    return render_workflow(workflow.name, len(workflow.steps), graph, note=why_not)


def _draw(workflow: Workflow, statuses: dict[str, str] | None = None) -> tuple[str, str]:
    """The graph, or why there is none."""
    count = len(workflow.steps)
    graph = "" if count > DRAWN_STEPS_MAX else Workflows.draw_for_notebook(workflow, statuses, nodes_max=NODES_MAX)
    return graph, "" if graph else f"the graph of {count:,} steps is too large to be drawn here"


# -- its style -------------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@cache
def _style() -> str:
    """The style sheet without its comments and line breaks: every output of a notebook carries it."""
    text = resources.files("mulligan.client").joinpath("notebook.css").read_text(encoding="utf-8")
    return " ".join(_COMMENT.sub("", text).split())
