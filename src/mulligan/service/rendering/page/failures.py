"""The failures and how each was handled: one collapsible block per failed visit, with its recovery ladder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from urllib.parse import quote

from mulligan.core.deciding.classify import TOO_LARGE, TOO_LONG
from mulligan.core.model.text.formatting import pluralize
from mulligan.history.route_outcomes import FailureOutcome, format_times
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.report.build import FailureCode
from mulligan.service.runs.views.report.visits import ItemFailures, Log, Rung, VisitFailure, VisitLine

# Up to this many blocks are open at first; of more, only the unhandled ones, up to this many.
OPEN_MAX = 6
# How many visits of one code are listed; the rest is folded.
GROUP_MAX = 12
# The parts of a path that are shown: `.mulligan/runs/7/logs/build#1.err`, without the folders above it.
_PARTS_SHOWN = 5
_STREAMS = {".err": "stderr", ".out": "stdout"}


def render_failures(report: Report, folder: str | None = None) -> Html:
    """Every failed visit by code: steps first, then the items of maps, by step. `folder`: the folder of the page."""
    head = element("h2", "Failures and how they were handled", id="failures")
    if not report.visits:
        return element("section", head, ui.note("Nothing failed."))
    steps = [visit for visit in report.visits if not visit.is_item]
    items = [visit for visit in report.visits if visit.is_item]
    order = {one.code: number for number, one in enumerate(report.codes)}
    return element(
        "section",
        head,
        _codes(report),
        join_html(_groups(steps, order, folder)),
        join_html(_items(report, items, order, folder)),
        _left_out(report),
    )


def _codes(report: Report) -> Html:
    """The failures by code, in numbers; nothing if the list below is short enough."""
    if len(report.codes) < 2 and sum(one.visits for one in report.codes) <= OPEN_MAX:
        return Html("")
    return codes_list((one.code, _how_many(one), _tone(one)) for one in report.codes)


def codes_list(entries: Iterable[tuple[str, str, str]]) -> Html:
    """Codes of failures with how many there are, each in a tone."""
    rows = (element("li", element("b", code), element("span", words), class_=tone) for code, words, tone in entries)
    return element("ul", *rows, class_="codes")


def _how_many(one: FailureCode) -> str:
    words = [pluralize(one.steps, "step")] if one.steps else []
    words += [pluralize(one.items, "item")] if one.items else []
    suffix = f", {one.unhandled:,} unhandled" if one.unhandled else ", resolved" if _tone(one) == "good" else ""
    return " and ".join(words) + suffix


def _tone(one: FailureCode) -> str:
    if one.unhandled:
        return "bad"
    return "good" if one.repaired == one.visits else "idle"


def _left_out(report: Report) -> Html:
    shown, count = len(report.visits), report.visits_count
    return ui.note(f"Of {count:,} failed visits, {shown:,} are shown.") if shown < count else Html("")


def _groups(visits: list[VisitFailure], order: dict[str, int], folder: str | None) -> Iterator[Html]:
    """Visits below their code, if there are several codes; unhandled visits first."""
    groups = _by_code(visits, order)
    number = 0
    for code, group in groups:
        if len(groups) > 1:
            yield element("h3", code, " ", element("small", pluralize(len(group), "visit")), class_="code")
        folds = []
        for visit in group:
            is_open = number < OPEN_MAX and (
                len(visits) <= OPEN_MAX or visit.outcome in (FailureOutcome.UNHANDLED, FailureOutcome.IN_PROGRESS)
            )
            number += 1
            folds.append(render_visit(visit, folder, is_open=is_open))
        yield join_html(folds[:GROUP_MAX])
        if rest := folds[GROUP_MAX:]:
            yield ui.details(f"{len(rest):,} more with {code}", *rest)


def _by_code(visits: list[VisitFailure], order: dict[str, int]) -> list[tuple[str, list[VisitFailure]]]:
    groups: dict[str, list[VisitFailure]] = {}
    for visit in visits:
        groups.setdefault(visit.code, []).append(visit)
    return sorted(groups.items(), key=lambda group: order.get(group[0], len(order)))


def render_visit(
    visit: VisitFailure, folder: str | None = None, *, is_open: bool = False, href: str = "", name: str = ""
) -> Html:
    """A failed visit with its ladder, its story and its logs. `href`: the page of its step; `name`: its id."""
    tone, glyph = ui.OUTCOME_LOOKS[visit.outcome]
    occurrence = _occurrence(visit)
    head = element(
        "summary",
        element("span", glyph, class_=f"glyph {tone}", aria_hidden="true"),
        element("strong", visit.name or visit.unit, title=visit.unit if visit.name else None),
        element("small", occurrence) if occurrence else "",
        element("span", visit.what, class_="what"),
        element("span", visit.answer, class_=f"answer {tone}"),
    )
    parts = [
        rungs_list((ui.RUNG_NAMES[rung.name], *_rung(rung, visit)) for rung in visit.rungs) if visit.rungs else "",
        _message(visit),
        _stream("the output that 'validate' rejected", visit.refused) if visit.refused else "",
        _story(visit) if visit.lines else Html(""),
        join_html(_log(log, folder) for log in visit.logs),
    ]
    fold = element("details", head, *parts, class_=f"visit outcome-{visit.outcome}", open=is_open, id=name or None)
    if not href:
        return fold
    # Beside the line that opens and closes, not in it: a screen reader does not know two actions of one line.
    link = element("a", "Open", href=href, aria_label=f"Open {visit.name or visit.unit}")
    return element("div", fold, link, class_="visit-beside", id=f"{name}-beside" if name else None)


def _occurrence(visit: VisitFailure) -> str:
    words = [f"round {visit.round}"] if visit.round > 1 else []
    words += [f"visit {visit.visit}"] if visit.visit > 1 else []
    words += [f"failed{format_times(visit.failures)}"] if visit.failures > 1 else []
    return ", ".join(words)


def rungs_list(rungs: Iterable[tuple[str, str, str]]) -> Html:
    """The rungs of the ladder: what each is called, what came of it, and what it says."""
    rows = (element("li", element("b", name), element("span", said), class_=outcome) for name, outcome, said in rungs)
    return element("ol", *rows, class_="rungs")


def _rung(rung: Rung, visit: VisitFailure) -> tuple[str, str]:
    unused = "not reached" if visit.outcome == FailureOutcome.IN_PROGRESS else "not needed"
    return rung.outcome, unused if rung.outcome == "unasked" else rung.said


def _message(visit: VisitFailure) -> Html:
    """The message of the failure, unless the summary line already shows all of it."""
    message = visit.message.strip()
    is_shown = not message or message in visit.what or message in (TOO_LONG, TOO_LARGE)
    return Html("") if is_shown else ui.text_block(message)


def _story(visit: VisitFailure) -> Html:
    lines = [_line(line, visit.unit) for line in visit.lines]
    if visit.lines_left:
        more = element("tr", element("td"), element("td", f"… {visit.lines_left:,} more lines …"))
        lines.insert(len(lines) // 2, more)
    title = f"Story ({pluralize(len(visit.lines) + visit.lines_left, 'line')})"
    return ui.details(title, element("table", *lines, class_="story"))


def _line(line: VisitLine, unit: str) -> Html:
    where = _where(line.place.removeprefix(unit).lstrip("."))
    said = element("td", element("code", where) if where else "", " " if where else "", line.text, class_=line.tone)
    return element("tr", element("td", f"{line.at:%H:%M:%S}", class_="time"), said)


def _where(rest: str) -> str:
    """Which part of a step or item it is; "" for the only command of an item."""
    if rest.isdecimal():
        return f"command {int(rest) + 1}" if rest != "0" else ""
    return rest


def _log(log: Log, folder: str | None) -> Html:
    title = f"Log of {log.name or log.place}, attempt {log.attempt}{' (the end of it)' if log.is_cut else ''}"
    if not (log.stdout or log.stderr):
        said = f"the log is on {log.ran_on}" if log.ran_on else "no log"
        return ui.note(f"{title}: {said}")
    parts = [_stream(name, written) for name, written in (("stderr", log.stderr), ("stdout", log.stdout)) if written]
    return ui.details(title, *parts, render_log_links(log.files, folder))


def _stream(name: str, written: str) -> Html:
    return element("figure", element("figcaption", name), ui.text_block(written.rstrip("\n")))


def _items(report: Report, visits: list[VisitFailure], order: dict[str, int], folder: str | None) -> Iterator[Html]:
    kinds = {(one.step, one.visit): one for one in report.item_failures}
    groups: dict[tuple[str, int], list[VisitFailure]] = {}
    for visit in visits:
        groups.setdefault((visit.step, visit.visit), []).append(visit)
    for (step, number), group in groups.items():
        head = element(
            "summary",
            element("strong", f"Items of {step}"),
            element("small", f"visit {number}") if number > 1 else "",
            element("span", _kinds(kinds.get((step, number)), len(group)), class_="what"),
        )
        few = len(group) <= OPEN_MAX
        inside = join_html(
            render_visit(visit, folder, is_open=False) for _, some in _by_code(group, order) for visit in some
        )
        yield element("details", head, inside, class_="visit items", open=few)


def _kinds(found: ItemFailures | None, shown: int) -> str:
    if found is None:
        return f"{pluralize(shown, 'item')} failed at first and then completed"
    if len(found.kinds) == 1:
        return f"{pluralize(found.items, 'item')} failed with {found.kinds[0][0]}"
    said = ", ".join(f"{count:,} with {kind}" for kind, count in found.kinds)
    return f"{pluralize(found.items, 'item')} failed: {said}"


def render_log_links(files: Sequence[str], folder: str | None) -> Html:
    """Links to the log files of an attempt. `folder`: the folder of the page; None if it is unknown."""
    if not files:
        return Html("")
    return element("p", "Full log: ", join_html((_file(file, folder) for file in files), ", "), class_="note files")


def _file(file: str, folder: str | None) -> Html:
    near = folder is not None and os.path.commonpath([folder, file]) != os.sep
    if not near:
        return element("code", "/".join(PurePath(file).parts[-_PARTS_SHOWN:]))
    name = _STREAMS.get(PurePath(file).suffix, PurePath(file).name)
    return element("a", name, href=quote(os.path.relpath(file, folder)))
