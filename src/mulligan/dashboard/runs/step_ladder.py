"""The recovery ladder on a page: what each rung did about a failure, or why it did nothing."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.history.route_outcomes import FailureOutcome
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import time_element
from mulligan.service.runs.views.report.visits import Rung
from mulligan.service.runs.views.run_details import FailureHandlers
from mulligan.service.runs.views.step_history import RuleLine, VisitLadder

_OUTCOMES = {"tried": "tried", "passed": "did not apply", "absent": "none"}
_TRIAGE = {
    "always": "every failure is parked",
    "unmatched": "a failure that no rule matches is parked",
    "exhausted": "a failure is parked when its retries are used up",
}


def ladder(found: VisitLadder, handlers: FailureHandlers | None) -> Html:
    """One failed visit, rung by rung."""
    visit = found.visit
    rows = []
    for rung in visit.rungs:
        inside = _details(rung.name, found, handlers, is_reached=rung.outcome != "unasked")
        said = [element("p", rung.said)] if rung.said not in _NO_NEWS else []
        kind = f"{rung.outcome} {_tone(rung, visit.outcome)}"
        rows.append(_rung(ui.RUNG_NAMES[rung.name], _outcome(rung, visit.outcome), [*said, *inside], kind))
    return element("ol", *rows, class_="ladder")


_NO_NEWS = ("", "no rules", "no handler", "no triage", "no failure edge")


def _rung(name: str, outcome: str, said: Sequence[object], kind: str) -> Html:
    inside = (element("span", outcome, class_="outcome"), element("div", *said, class_="said"))
    return element("li", element("b", name), *inside, class_=kind)


def _triage_lines(handlers: FailureHandlers) -> list[str]:
    if not handlers.triage:
        return []
    return [_TRIAGE.get(handlers.triage, handlers.triage), *filter(None, [handlers.triage_agent])]


def _outcome(rung: Rung, outcome: FailureOutcome) -> str:
    if rung.outcome == "unasked":
        return "not reached yet" if outcome == FailureOutcome.IN_PROGRESS else "not needed"
    if rung.outcome == "dealt":
        helped = "helped" if outcome == FailureOutcome.REPAIRED else "took it"
        return "not handled" if rung.name == "end" else helped
    return _OUTCOMES[rung.outcome]


def _tone(rung: Rung, outcome: FailureOutcome) -> str:
    if rung.outcome == "dealt":
        return ui.OUTCOME_LOOKS[outcome][0]
    return "try" if rung.outcome == "tried" else "idle"


def _details(name: str, found: VisitLadder, handlers: FailureHandlers | None, *, is_reached: bool) -> list[Html]:
    if name == "retry":
        return [_rules(found.rules)] if found.rules else []
    if handlers is None:
        return []
    if name == "handle" and handlers.on_failure is not None:
        return [_handler(handlers)]
    if name == "triage" and handlers.triage:
        return [element("p", line, class_="dim") for line in _triage_lines(handlers)]
    if name == "route" and found.edges:
        return [ui.bullets(found.edges, "plain")]
    if name == "route" and handlers.edges and not is_reached:
        return [ui.bullets(_edges(handlers), "plain")]
    return []


def _rules(rules: list[RuleLine]) -> Html:
    has_places = len({one.place for one in rules}) > 1
    rows = join_html(
        element(
            "tr",
            element("td", f"{one.name or one.place} " if has_places else "", f"rule {one.number}", class_="dim nowrap"),
            element("td", one.looks_for),
            element("td", one.reason, class_=f"reason {_RULE_TONES[one.use]}"),
        )
        for one in rules
    )
    return element("table", rows, class_="rules", aria_label="Retry rules")


_RULE_TONES = {"used": "good", "spent": "try", "passed": "idle"}


def _handler(handlers: FailureHandlers) -> Html:
    found = handlers.on_failure
    assert found is not None
    commands = (ui.text_block(one) for one in found.commands if one)
    return join_html([element("p", f"strategy {found.strategy}", class_="dim"), *commands])


def _edges(handlers: FailureHandlers) -> list[str]:
    found = []
    for edge in handlers.edges:
        when = f" for {edge.looks_for}" if edge.looks_for else ""
        then = {"rerun": ", then runs again", "continue": ", which replaces it"}.get(edge.then or "", "")
        found.append(f"to '{edge.to}'{when}{then}")
    return found


def ladder_title(found: VisitLadder, *, has_failure: bool = True) -> Html:
    """What failed in a visit, and how it ended, in one line."""
    visit = found.visit
    words = [f"round {visit.round}"] if visit.round > 1 else []
    words += [f"visit {visit.visit}"] if visit.visit > 1 else []
    words += [f"failed {visit.failures} times"] if visit.failures > 1 else []
    tone, glyph = ui.OUTCOME_LOOKS[visit.outcome]
    return join_html(
        [
            element("span", glyph, class_=f"glyph {tone}", aria_hidden="true"),
            element("strong", visit.what) if has_failure else "",
            element("small", ", ".join(words)) if words else "",
            element("span", visit.answer, class_=f"answer {tone}"),
            time_element(visit.at),
        ],
        " ",
    )


def plan(handlers: FailureHandlers) -> Html:
    """What would deal with a failure, for a step that has none."""
    parts: list[tuple[str, list[str]]] = [
        ("Retry", [f"{one.looks_for}: {pluralize(one.max_retries, 'time')}" for one in handlers.rules]),
        ("Handle", _handler_words(handlers)),
        ("Triage", _triage_lines(handlers)),
        ("Route", _edges(handlers)),
        ("Converge", ["the run goes on, since it may fail" if handlers.continue_on_error else "the run fails"]),
    ]
    rows = (
        _rung(name, "", [ui.bullets(lines, "plain")], "idle planned")
        if lines
        else _rung(name, "none", [], "idle absent")
        for name, lines in parts
    )
    return element("ol", *rows, class_="ladder")


def _handler_words(handlers: FailureHandlers) -> list[str]:
    found = handlers.on_failure
    return [] if found is None else [f"{found.strategy}: {'; '.join(one for one in found.commands if one)}"]
