"""`mulligan whatif`: what a changed workflow would have made of the runs that are recorded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from mulligan.analysis.whatif.results import RunWhatIf, WhatIf
from mulligan.cli.output.tables import show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result, show_warnings
from mulligan.cli.words.options import AsJson, Catalogue, HomeFolder, System, TrustTemplates, service_at
from mulligan.cli.words.parameters import Argument, Option
from mulligan.formats import examine
from mulligan.service.authoring.values import parse_duration
from mulligan.service.authoring.whatif import WhatIfSelection
from mulligan.service.authoring.whatif_text import describe_assumptions, describe_end, describe_estimate, whatif_summary

HEADS = ("RUN", "CREATED", "THEN", "WOULD BE", "BY", "STEP", "WHY")
# There was nothing to decide again.
EXIT_NOTHING = 2
LISTED_MAX = 30


def whatif(
    file: Annotated[Path, Argument("FILE", "The changed workflow file.")],
    since: Annotated[str | None, Option("TIME", "Only runs started within this time: 12h, 30d (default: all).")] = None,
    step: Annotated[str, Option("STEP", "Only runs in which an attempt of this step failed.")] = "",
    runs: Annotated[list[str] | None, Option("RUN", "Only this run. May be given several times.", "--run")] = None,
    name: Annotated[str, Option("NAME", "The workflow whose runs to take (default: the name in the file).")] = "",
    seed: Annotated[int, Option("N", "Draw other estimates (default: 0).")] = 0,
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Try a changed workflow on the runs that are recorded.

    Each run is decided again with the new file. Attempts that happened end as they did; what never happened is drawn
    from what other runs say, and marked as an estimate. Nothing is executed, and nothing is written.
    """
    begun = datetime.now(UTC) - timedelta(seconds=parse_duration(since)) if since is not None else None
    if seed < 0:
        raise UsageRefused("--seed must be at least 0")
    examined = examine(file, named=system, trust_templates=trust_templates, catalogue=catalogue)
    show_warnings(examined.warnings)
    with service_at(home) as service:
        run_ids = tuple(service.runs.find(run) for run in runs or ())
        selection = WhatIfSelection(
            workflow=name,
            since=begun,
            run_ids=run_ids,
            step=step,
            seed=seed,
            listed_max=LISTED_MAX,
            env=os.environ,
        )
        found = service.workflows.whatif(examined.workflow, selection)
    if as_json:
        show_result(found)
    elif not found.runs:
        complain(_nothing(found, since))
    else:
        _show(found, file, since)
    return 0 if found.runs else EXIT_NOTHING


def _nothing(found: WhatIf, since: str | None) -> str:
    failed = f" in which '{found.step}' failed" if found.step else ""
    begun = f" started in the last {since}" if since is not None else ""
    return (
        f"no run of '{found.workflow}'{failed}{begun} is recorded here: there is nothing to decide again\n"
        "  list the runs: mulligan list; take those of another name: --name NAME; of another folder: --home DIR"
    )


def _show(found: WhatIf, file: Path, since: str | None) -> None:
    for line in whatif_summary(found, str(file), f"of the last {since}" if since is not None else ""):
        show(line)
    if found.changed:
        show("")
        show_table(HEADS, [_row(run) for run in found.changed])
        if found.changed_total > len(found.changed):
            show(f"and {found.changed_total - len(found.changed):,} more: --json lists the first of each kind")
    undecided = [f"run {one.run_id} ({one.was}): {one.reason}" for one in found.undecided]
    if found.undecided and found.undecided_total > len(found.undecided):
        undecided.append(f"and {found.undecided_total - len(found.undecided):,} more")
    assumed = describe_assumptions(found) if found.outcomes_assumed else []
    _show_list("assumed: a recorded outcome, although", assumed)
    estimates = [describe_estimate(one) for one in found.estimates]
    _show_list(f"estimates (another draw: --seed {found.seed + 1})", estimates)
    _show_list("cannot be said", undecided)


def _show_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        show("\n".join(("", title, *(f"  {line}" for line in lines))))


def _row(run: RunWhatIf) -> tuple[str, ...]:
    return (
        str(run.run_id),
        f"{run.created_at:%Y-%m-%d %H:%M:%S}",
        describe_end(run.was, is_degraded=run.was_degraded),
        describe_end(run.would_be, is_degraded=run.would_be_degraded),
        run.by,
        run.step or "-",
        run.why,
    )
