"""Suggested rules: what the runs of a workflow propose, with the evidence, and a draft with one click."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import action_button, chips
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, panel, shortened
from mulligan.errors import NotFound
from mulligan.service.authoring.suggest import LookedAt, SuggestedChange, Suggestions
from mulligan.service.authoring.suggest_words import describe_saving, describe_what_if
from mulligan.service.authoring.values import parse_time
from mulligan.service.rendering.formatting import pluralize, single_line
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html

# What stands before and behind the name of the step.
_TITLES = {
    "retry": ("A retry rule for ", ""),
    "memory": ("Another memory limit for ", ""),
    "timeout": ("Another timeout for ", ""),
    "useless_rule": ("A rule of ", " that never helped"),
    "useless_handler": ("A handler of ", " that never worked"),
    "useless_remediation": ("A remediation of ", " that never worked"),
    "breaker": ("A circuit breaker for ", ""),
}
_PERIODS = (("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days"), ("all", "all runs"))
_WORKFLOWS_MAX = 12
_SHOWN_MAX = 50
_TEXT_MAX = 600


class SuggestionsQuery(Query, frozen=True):
    """Of which workflow, and of the runs of which time."""

    workflow: str = ""
    since: Literal["7d", "30d", "90d", "all"] = "30d"


def show_suggestions(call: Call) -> Answer:
    asked: SuggestionsQuery = call.query
    found = _find(call, asked)
    lead = "Proposed from what failed, what people decided about it, and how that ended. Nothing is changed by itself."
    return page(
        call,
        "Suggested rules",
        heading("Suggested rules", over=ui.link("Recovery", "recovery")),
        element("p", lead, class_="lead"),
        _choose(call, asked),
        *_proposals(call, found, asked),
        section="recovery",
    )


def _find(call: Call, asked: SuggestionsQuery) -> Suggestions | None:
    """What is proposed; None if no run of the workflow is that young."""
    since = None if asked.since == "all" else parse_time(asked.since, datetime.now(UTC))
    try:
        return call.service.workflows.suggest(asked.workflow, since=since)
    except NotFound:
        return None


def _choose(call: Call, asked: SuggestionsQuery) -> Html:
    def to(workflow: str, since: str) -> str:
        return ui.link_with("/recovery/suggestions", workflow=workflow, since="" if since == "30d" else since)

    periods = chips("Time", [(text, to(asked.workflow, since), since == asked.since) for since, text in _PERIODS])
    if asked.workflow:
        names = [(asked.workflow, to(asked.workflow, asked.since), True), ("all workflows", to("", asked.since), False)]
    else:
        names = [(name, to(name, asked.since), False) for name in call.service.trends.workflows()[:_WORKFLOWS_MAX]]
    return element("div", periods, chips("Workflow", names) if names else "", class_="choices")


def _proposals(call: Call, found: Suggestions | None, asked: SuggestionsQuery) -> list[Html]:
    if found is None:
        return [empty("No run of this workflow was started in this time.")]
    published = {name for name in found.looked_at.workflows if _is_published(call, name)}
    shown = [_proposal(call, one, one.workflow in published, asked) for one in found.proposals[:_SHOWN_MAX]]
    if not shown:
        shown = [empty("Nothing to propose.", element("p", _looked_at(found.looked_at)))]
    else:
        shown.append(ui.note(_looked_at(found.looked_at)))
    return [*shown, *_nearly(found)]


def _is_published(call: Call, name: str) -> bool:
    try:
        call.service.catalogue.workflow(name)
    except NotFound:
        return False
    return True


def _proposal(call: Call, one: SuggestedChange, is_published: bool, asked: SuggestionsQuery) -> Html:
    before, behind = _TITLES[one.kind]
    href = ui.path_to("workflows", one.workflow) if is_published else ui.link_with("/runs", workflow=one.workflow)
    workflow = element("a", one.workflow, href=href)
    written = ui.text_block(one.yaml, class_="source", aria_label="As it is written") if one.yaml else ""
    return panel(
        join_html([before, element("code", one.step), behind, ", in ", workflow]),
        element("p", _sentence(one.evidence), class_="sentence"),
        element("p", element("strong", "Proposal: "), _text(one.proposal), class_="sentence"),
        written,
        ui.pairs(_facts(one)),
        _action(call, one, is_published, asked),
        name=f"proposal-{one.id}",
    )


def _text(text: str) -> str:
    return shortened(single_line(text), _TEXT_MAX)


def _sentence(text: str) -> str:
    shown = _text(text)
    return f"{shown[:1].upper()}{shown[1:]}."


def _facts(one: SuggestedChange) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    if saved := describe_saving(one.saving):
        found.append(("Would have saved", saved))
    if one.what_if is not None:
        found.append(("What if", describe_what_if(one.what_if)))
    if one.counted.run_ids:
        links = join_html([ui.run_link(run_id) for run_id in one.counted.run_ids], ", ")
        more = one.counted.runs - len(one.counted.run_ids)
        found.append(("Seen in", join_html([links, f" and {more:,} more" if more > 0 else ""])))
    return found


def _action(call: Call, one: SuggestedChange, is_published: bool, asked: SuggestionsQuery) -> Html | str:
    if one.change is None:
        return element("p", "Nothing can be written for you here: somebody has to look at it.", class_="note behind")
    if not is_published:
        command = element("code", f"mulligan suggest FILE --write --pick {one.id}")
        return element("p", "Write it into the workflow file: ", command, class_="note behind")
    if not may(call, "propose"):
        return ""
    button = action_button(
        "Make a draft",
        f"workflows/{ui.path_to(one.workflow)[1:]}:suggest",
        f"Put this into a draft of {one.workflow}",
        text="The draft opens in the editor. Nothing runs it until it is published.",
        body={"ids": [one.id], **({} if asked.since == "all" else {"since": asked.since})},
        confirm="Make the draft",
        done="the draft is written",
        next="/workflows/{workflow}/edit",
    )
    return element("p", button, class_="behind")


def _nearly(found: Suggestions) -> list[Html]:
    if not found.nearly:
        return []
    rows = [element("li", _sentence(one.seen), element("br"), f"Needed: {one.needed}") for one in found.nearly]
    return [panel("Too little evidence yet", element("ul", *rows, class_="plain"), name="nearly")]


def _looked_at(one: LookedAt) -> str:
    words = (
        f"Looked at {pluralize(one.runs, 'run')} of {pluralize(len(one.workflows), 'workflow')}, with "
        f"{pluralize(one.failures, 'failed attempt')} and {pluralize(one.decisions, 'decision')}."
    )
    return words + (" Older runs were left out." if one.is_cut or one.left_out else "")


ROUTES = (
    page_route(
        "/recovery/suggestions",
        show_suggestions,
        "Rules and limits that the runs speak for, with the evidence.",
        query=SuggestionsQuery,
        is_slow=True,
    ),
)
