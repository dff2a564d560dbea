"""What failed, and what was done about it: a fold per failed visit, with the ladder that it climbed."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.words import counted
from ..account import times
from ..report import Report
from ..report.visits import FailedVisit, ItemFailures, Log, Rung, Told
from .markup import Html, element, joined

# So few are open from the start; of more, only those that nobody dealt with, up to as many.
OPEN_MAX = 6
_TONES = {"open": "bad", "left": "idle", "under_way": "now", "mended": "good"}
_GLYPHS = {"open": "✕", "left": "○", "under_way": "▸", "mended": "✓"}
_RUNGS = {"retry": "Retry", "handle": "Handle", "triage": "Triage", "route": "Route", "end": "Converge"}


def failures(report: Report) -> Html:
    """Every failed visit: steps first, then the items of maps, by step."""
    head = element("h2", "What failed, and what was done about it", id="failures")
    if not report.visits:
        return element("section", head, element("p", "Nothing failed.", class_="note"))
    steps = [visit for visit in report.visits if not visit.is_item]
    items = [visit for visit in report.visits if visit.is_item]
    return element("section", head, joined(_folds(steps)), joined(_items(report, items)), _left_out(report))


def _left_out(report: Report) -> Html:
    shown, count = len(report.visits), report.visits_count
    return (
        element("p", f"Of {count:,} failed visits, {shown:,} are shown.", class_="note") if shown < count else Html("")
    )


def _folds(visits: list[FailedVisit]) -> Iterator[Html]:
    for number, visit in enumerate(visits):
        is_open = number < OPEN_MAX and (len(visits) <= OPEN_MAX or visit.fate in ("open", "under_way"))
        yield _visit(visit, is_open=is_open)


def _visit(visit: FailedVisit, *, is_open: bool) -> Html:
    tone = _TONES[visit.fate]
    which = _which(visit)
    head = element(
        "summary",
        element("span", _GLYPHS[visit.fate], class_=f"glyph {tone}", aria_hidden="true"),
        element("strong", visit.unit),
        element("small", which) if which else "",
        element("span", visit.what, class_="what"),
        element("span", visit.answer, class_=f"answer {tone}"),
    )
    parts = [
        element("ol", joined(_rung(rung, visit) for rung in visit.rungs), class_="rungs"),
        _message(visit),
        _story(visit),
    ]
    return element(
        "details", head, *parts, joined(map(_log, visit.logs)), class_=f"visit fate-{visit.fate}", open=is_open
    )


def _which(visit: FailedVisit) -> str:
    words = [f"round {visit.round}"] if visit.round > 1 else []
    words += [f"visit {visit.visit}"] if visit.visit > 1 else []
    words += [f"failed{times(visit.failures)}"] if visit.failures > 1 else []
    return ", ".join(words)


def _rung(rung: Rung, visit: FailedVisit) -> Html:
    unasked = "not reached" if visit.fate == "under_way" else "not needed"
    said = unasked if rung.outcome == "unasked" else rung.said
    return element("li", element("b", _RUNGS[rung.name]), element("span", said), class_=rung.outcome)


def _message(visit: FailedVisit) -> Html:
    """What it said, where that is more than a line that stands above already."""
    message = visit.message.strip()
    return element("pre", message) if message and message not in visit.what else Html("")


def _story(visit: FailedVisit) -> Html:
    lines = [_line(line, visit.unit) for line in visit.lines]
    if visit.lines_left:
        lines.insert(
            len(lines) // 2, element("tr", element("td"), element("td", f"… {visit.lines_left:,} more lines …"))
        )
    head = element("summary", f"Story ({counted(len(visit.lines) + visit.lines_left, 'line')})")
    return element("details", head, element("table", joined(lines), class_="story"), class_="inner")


def _line(line: Told, unit: str) -> Html:
    where = _where(line.place.removeprefix(unit).lstrip("."))
    said = element("td", element("code", where) if where else "", " " if where else "", line.text, class_=line.tone)
    return element("tr", element("td", f"{line.at:%H:%M:%S}", class_="time"), said)


def _where(rest: str) -> str:
    """Which part of a step or item it is; most items have one command, and it goes without saying."""
    if rest.isdecimal():
        return f"command {int(rest) + 1}" if rest != "0" else ""
    return rest


def _log(log: Log) -> Html:
    title = f"Log of {log.place}, attempt {log.attempt}{', the end of it' if log.is_cut else ''}"
    if not (log.stdout or log.stderr):
        said = f"there is no log of it here: it ran on {log.ran_on}" if log.ran_on else "it wrote nothing"
        return element("p", f"{title}: {said}", class_="note")
    parts = [_stream(name, written) for name, written in (("stderr", log.stderr), ("stdout", log.stdout)) if written]
    return element("details", element("summary", title), *parts, class_="inner")


def _stream(name: str, written: str) -> Html:
    return element("figure", element("figcaption", name), element("pre", written.rstrip("\n")))


def _items(report: Report, visits: list[FailedVisit]) -> Iterator[Html]:
    kinds = {(one.step, one.visit): one for one in report.item_failures}
    groups: dict[tuple[str, int], list[FailedVisit]] = {}
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
        inside = joined(_visit(visit, is_open=False) for visit in group)
        yield element("details", head, inside, class_="visit items", open=few)


def _kinds(found: ItemFailures | None, shown: int) -> str:
    if found is None:
        return f"{counted(shown, 'item')} failed at first, and then completed"
    if len(found.kinds) == 1:
        return f"{counted(found.items, 'item')} failed with {found.kinds[0][0]}"
    said = ", ".join(f"{count:,} with {kind}" for kind, count in found.kinds)
    return f"{counted(found.items, 'item')} failed: {said}"
