"""What the draft of a workflow would have made of its recorded runs: the answer of `mulligan whatif` as a page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mulligan.analysis.whatif.results import RunWhatIf, WhatIf
from mulligan.api.http.routing import Answer, Call
from mulligan.dashboard.components.shell import empty, heading, page, page_route, panel, problems_panel
from mulligan.errors import LanguageError
from mulligan.service.authoring.whatif import WhatIfSelection
from mulligan.service.authoring.whatif_text import describe_assumptions, describe_end, describe_estimate, whatif_summary
from mulligan.service.rendering.page import ui
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
        content = problems_panel("The draft cannot be read", refused)
    over = join_html([ui.link("Workflows", "workflows"), " · ", ui.link(name, "workflows", name)])
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
        parts.append(ui.table(head, map(_row, found.changed), label="Runs that would go another way"))
    lists = {
        "Assumed: a recorded outcome, although": describe_assumptions(found),
        "Estimates": [describe_estimate(one) for one in found.estimates],
        "Cannot be said": [f"run {one.run_id} ({one.was}): {one.reason}" for one in found.undecided],
    }
    return join_html([*parts, *(panel(title, ui.bullets(lines)) for title, lines in lists.items() if lines)])


def _row(run: RunWhatIf) -> ui.Row:
    return ui.row(
        ui.link(f"#{run.run_id}", "runs", run.run_id),
        time_element(run.created_at),
        describe_end(run.was, is_degraded=run.was_degraded),
        describe_end(run.would_be, is_degraded=run.would_be_degraded),
        run.by,
        run.step,
        run.why,
    )


ROUTES = (
    page_route(
        "/workflows/{name}/whatif",
        show_whatif,
        "What the draft of a workflow would have made of its recorded runs.",
        is_slow=True,
    ),
)
