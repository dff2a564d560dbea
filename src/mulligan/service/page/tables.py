"""The tables of a page: steps, attempts, called runs, values, events. Long ones are folded and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...core.words import counted, size
from ..report import Report
from ..report.attempts import Attempt
from ..report.gathering import StepLine, Value
from .colours import OUTCOMES, STATUSES
from .markup import Html, element, joined
from .words import length, said

# More rows than this are folded, more than that are not shown.
OPEN_ROWS_MAX, ROWS_MAX = 25, 1_000


def table(heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[object]]) -> Html:
    """A table that scrolls by itself where a page is narrow. Each head comes with the class of its column."""
    top = element("tr", joined(element("th", name, class_=kind or None, scope="col") for name, kind in heads))
    body = joined(element("tr", joined(_cells(heads, row))) for row in rows)
    return element(
        "div",
        element("table", element("thead", top), element("tbody", body)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=", ".join(name for name, _ in heads if name),
    )


def _cells(heads: Sequence[tuple[str, str]], row: Sequence[object]) -> Iterator[Html]:
    return (element("td", cell, class_=kind or None) for (_, kind), cell in zip(heads, row, strict=True))


def folded(title: str, inside: Html, *, is_open: bool = False) -> Html:
    return element("details", element("summary", title), inside, class_="inner", open=is_open)


def steps_table(report: Report) -> Html:
    heads = [
        ("step", ""),
        ("does", "dim"),
        ("status", ""),
        ("attempts", "n"),
        ("time", "n"),
        ("processor", "n"),
        ("memory", "n"),
        ("", "dim"),
    ]
    shown = report.steps[:ROWS_MAX]
    left = len(report.steps) - len(shown)
    note = element("p", f"and {left:,} more steps", class_="note") if left else ""
    rows = table(heads, (_step(step) for step in shown))
    title = counted(len(report.steps), "step") + ", with end"
    inside = joined([rows, note])
    return inside if len(report.steps) <= OPEN_ROWS_MAX else folded(title, inside)


def _step(step: StepLine) -> list[object]:
    status = element("span", said(step.status), class_=f"status {STATUSES.get(step.status, 'idle')}")
    figures = [length(step.wall_seconds), length(step.cpu_seconds)] if step.peak_memory else ["", ""]
    memory = size(step.peak_memory) if step.peak_memory else ""
    return [
        step.name,
        step.action,
        status,
        f"{step.attempts:,}" if step.attempts else "",
        *figures,
        memory,
        _remarks(step),
    ]


def _remarks(step: StepLine) -> str:
    words = [f"{step.visits} visits"] if step.visits > 1 else []
    words += ["recovered"] if step.recovered else []
    words += ["undone"] if step.undone else []
    if step.items:
        words.append(counted(step.items, "item") + (f", {step.items_failed:,} failed" if step.items_failed else ""))
    words += [f"agents: {step.agents}"] if step.agents else []
    return ", ".join(words)


def attempts_table(report: Report) -> Html:
    """The same as the charts show, for whoever reads rather than looks."""
    heads = [
        ("attempt", ""),
        ("came to", ""),
        ("began", "n"),
        ("took", "n"),
        ("processor", "n"),
        ("memory", "n"),
        ("asked", "n"),
        ("", "dim"),
    ]
    found = [one for one in report.attempts if not one.is_map]
    rows = table(heads, (_attempt(one, report) for one in found[:ROWS_MAX]))
    left = len(found) - ROWS_MAX
    note = element("p", f"and {left:,} more attempts", class_="note") if left > 0 else ""
    return folded(f"The same as a table ({counted(len(found), 'attempt')})", joined([rows, note]))


def _attempt(one: Attempt, report: Report) -> list[object]:
    began = length((one.started_at - report.started_at).total_seconds()) if one.started_at else ""
    took = length((one.ended_at - one.started_at).total_seconds()) if one.ended_at and one.started_at else ""
    return [
        f"{one.place} #{one.attempt}",
        element("span", one.outcome, class_=f"status {OUTCOMES[one.outcome]}"),
        began,
        took,
        length(one.cpu_seconds) if one.cpu_seconds is not None else "",
        size(one.peak_memory) if one.peak_memory else "",
        size(one.memory) if one.memory else "",
        one.what,
    ]


def children_table(report: Report) -> Html:
    heads = [("run", "n"), ("workflow", ""), ("status", ""), ("called by", "")]
    rows = (
        [
            child.run_id,
            child.workflow,
            element("span", said(child.status), class_=f"status {STATUSES.get(child.status, 'idle')}"),
            f"{child.place}, attempt {child.attempt}",
        ]
        for child in report.children
    )
    left = report.children_count - len(report.children)
    note = element("p", f"and {left:,} more runs", class_="note") if left else ""
    return joined([table(heads, rows), note])


def values(title: str, found: Sequence[Value]) -> Html:
    """Inputs or outputs: each with its value, cut where it is long."""
    pairs = joined(
        joined([element("dt", one.name), element("dd", element("pre", one.text + (" …" if one.is_cut else "")))])
        for one in found
    )
    return joined(
        [element("h3", title), element("dl", pairs, class_="values") if found else element("p", "none", class_="note")]
    )


def events_table(report: Report) -> Html:
    heads = [("seq", "n"), ("time", "time"), ("event", ""), ("where", "")]
    rows = ([one.seq, f"{one.at:%Y-%m-%d %H:%M:%S}", one.type, one.place] for one in report.events)
    return folded(f"The last {len(report.events):,} of {counted(report.events_count, 'event')}", table(heads, rows))
