"""What the draft of a workflow would have made of its recorded runs: the answer of `mulligan whatif` as a page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mulligan.analysis.whatif.results import RunWhatIf, WhatIf
from mulligan.api.http.routing import Answer, Call, Route
from mulligan.dashboard.components.shell import HTML, empty, heading, page, panel, path_to, table
from mulligan.errors import LanguageError
from mulligan.service.authoring.whatif import WhatIfSelection
from mulligan.service.authoring.whatif_text import describe_assumptions, describe_end, describe_estimate, whatif_summary
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import time_element

# What one page looks at.
DAYS, RUNS_MAX, SECONDS_MAX, LISTED_MAX = 30, 500, 10.0, 100


def show_whatif(call: Call) -> Answer:
    name = call.path["name"]
    draft = call.service.catalogue.draft(name)
    selection = WhatIfSelection(
        workflow=name,
        since=datetime.now(UTC) - timedelta(days=DAYS),
        runs_max=RUNS_MAX,
        seconds_max=SECONDS_MAX,
        listed_max=LISTED_MAX,
    )
    try:
        content = _answer(call.service.workflows.whatif_of_text(draft.text, selection, file=draft.file))
    except LanguageError as refused:
        lines = join_html((one.render() for one in refused.problems[:20]), "\n")
        content = panel("The draft cannot be read", element("pre", lines, tabindex="0"), tone="bad")
    here = path_to("workflows", name)
    over = join_html([element("a", "Workflows", href="/workflows"), " · ", element("a", name, href=here)])
    return page(call, f"What if: {name}", heading("What if", over=over), content, section="workflows")


def _answer(found: WhatIf) -> Html:
    if not found.runs:
        return empty(
            f"No run of '{found.workflow}' of the last {DAYS} days is recorded: there is nothing to decide again."
        )
    lines = whatif_summary(found, "The draft", f"of the last {DAYS} days")
    parts = [join_html(element("p", line, class_="sentence") for line in lines)]
    if found.changed:
        head = ("Run", "Started", "Then", "Would be", "By", "Step", "Why")
        parts.append(table(head, [_row(run) for run in found.changed], label="Runs that would go another way"))
    parts += _list("Assumed: a recorded outcome, although", describe_assumptions(found))
    parts += _list("Estimates", [describe_estimate(one) for one in found.estimates])
    unsaid = [f"run {one.run_id} ({one.was}): {one.reason}" for one in found.undecided]
    parts += _list("Cannot be said", unsaid)
    return join_html(parts)


def _list(title: str, lines: list[str]) -> list[Html]:
    return [panel(title, element("ul", join_html(element("li", line) for line in lines)))] if lines else []


def _row(run: RunWhatIf) -> Html:
    cells = (
        element("a", f"#{run.run_id}", href=path_to("runs", run.run_id)),
        time_element(run.created_at),
        describe_end(run.was, is_degraded=run.was_degraded),
        describe_end(run.would_be, is_degraded=run.would_be_degraded),
        run.by,
        run.step,
        run.why,
    )
    return element("tr", join_html(element("td", cell) for cell in cells))


ROUTES = (
    Route(
        "GET",
        "/workflows/{name}/whatif",
        show_whatif,
        "read",
        "What the draft of a workflow would have made of its recorded runs.",
        media=HTML,
        is_page=True,
        is_slow=True,
    ),
)
