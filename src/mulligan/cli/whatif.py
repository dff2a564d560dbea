"""`mulligan whatif`: what a changed workflow would have made of the runs that are recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from mulligan.cli.options import AsJson, Catalogue, HomeFolder, System, TrustTemplates, service_at
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.tables import length, show_table
from mulligan.cli.terminal import UsageRefused, complain, show, show_json, show_warnings
from mulligan.service import (
    Estimate,
    RunWhatIf,
    Service,
    WhatIf,
    WhatIfSelection,
    parse_duration,
    to_json,
)
from mulligan.service.formatting import pluralize

HEADS = ("RUN", "CREATED", "THEN", "WOULD BE", "BY", "STEP", "WHY")
# There was nothing to decide again.
EXIT_NOTHING = 2
LISTED_MAX = 30
ASSUMED = {
    "sooner": "the attempt comes sooner after its failure than the recorded one",
    "other_action": "the step runs another command",
    "other_values": "the step gets other values",
    "other_limits": "the step gets less memory than it used",
}


def whatif(
    file: Annotated[Path, Argument(metavar="FILE", help="The changed workflow file.")],
    since: Annotated[
        str | None,
        Option("--since", metavar="TIME", help="Only runs started within this time: 12h, 30d (default: all)."),
    ] = None,
    step: Annotated[
        str, Option("--step", metavar="STEP", help="Only runs in which an attempt of this step failed.")
    ] = "",
    runs: Annotated[
        list[str] | None, Option("--run", metavar="RUN", help="Only this run. May be given several times.")
    ] = None,
    seed: Annotated[int, Option("--seed", metavar="N", help="Draw other estimates (default: 0).")] = 0,
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
    examined = Service.examine_workflow(file, named=system, trust_templates=trust_templates, catalogue=catalogue)
    show_warnings(examined.warnings)
    with service_at(home) as service:
        run_ids = tuple(service.find_run(run) for run in runs or ())
        selection = WhatIfSelection(
            since=begun, run_ids=run_ids, step=step, seed=seed, listed_max=LISTED_MAX, env=os.environ
        )
        found = service.whatif(examined.workflow, selection)
    if as_json:
        show_json(to_json(found))
    elif not found.runs:
        complain(_nothing(found, since))
    else:
        _show(found, file, since)
    return 0 if found.runs else EXIT_NOTHING


def _nothing(found: WhatIf, since: str | None) -> str:
    failed = f" in which '{found.step}' failed" if found.step else ""
    begun = f" started in the last {since}" if since is not None else ""
    return f"no run of '{found.workflow}'{failed}{begun} is recorded here: there is nothing to decide again"


def _show(found: WhatIf, file: Path, since: str | None) -> None:
    for line in summary_lines(found, str(file), since):
        show(line)
    if found.changed:
        show("")
        show_table(HEADS, [_row(run) for run in found.changed])
        if found.changed_total > len(found.changed):
            show(f"and {found.changed_total - len(found.changed):,} more: --json lists the first of each kind")
    if found.outcomes_assumed:
        show("")
        show("assumed: a recorded outcome, although")
        for doubt, count in found.outcomes_assumed.items():
            show(f"  {ASSUMED[doubt]} ({pluralize(count, 'time')})")
    if found.estimates:
        show("")
        show(f"estimates (another draw: --seed {found.seed + 1})")
        for one in found.estimates:
            show(f"  {_estimate(one)}")
    if found.undecided:
        show("")
        show("cannot be said")
        for undecided in found.undecided:
            show(f"  run {undecided.run_id} ({undecided.was}): {undecided.reason}")
        if found.undecided_total > len(found.undecided):
            show(f"  and {found.undecided_total - len(found.undecided):,} more")


def summary_lines(found: WhatIf, file: str, since: str | None) -> Iterator[str]:
    """Three lines: what would be otherwise, what that costs, and how sure it is."""
    over = f" of the last {since}" if since is not None else ""
    failed = f" in which '{found.step}' failed" if found.step else ""
    others = f"{found.changed_total:,} would have gone another way, {found.ends_otherwise:,} of them to another end"
    if not found.changed_total:
        others = "all would have gone as they did" if not found.undecided_total else "none would have gone another way"
    yield f"{file}: {pluralize(found.runs, 'run')} of '{found.workflow}'{over}{failed}: {others}{_by(found)}"
    spread = f" ({found.completed_low:,} to {found.completed_high:,})" if _is_spread(found) else ""
    yield (
        f"completed {found.completed_before:,} -> {found.completed_now:,}{spread}; "
        f"decisions by people {found.decisions:,} -> "
        f"{found.decisions - found.decisions_saved + found.decisions_added:,}; "
        f"attempts {found.attempts:+,}; time {_signed(found.seconds)}"
    )
    assumed, estimated = sum(found.outcomes_assumed.values()), sum(found.outcomes_estimated.values())
    sure = [f"facts alone decide {found.facts:,} of {pluralize(found.runs, 'run')}"]
    if found.changed_total:
        outcomes = f"{found.outcomes_recorded:,} recorded, {assumed:,} assumed and {estimated:,} estimated outcomes"
        sure.append(f"the changed ones rest on {outcomes}")
    sure += [f"{found.undecided_total:,} cannot be said"] if found.undecided_total else []
    sure += ["older runs were left out"] if found.is_cut else []
    yield "; ".join(sure)


def _is_spread(found: WhatIf) -> bool:
    return found.completed_low != found.completed_high


def _by(found: WhatIf) -> str:
    if not found.ends_otherwise:
        return ""
    return f" ({', '.join(f'{by}: {count:,}' for by, count in found.ends_otherwise_by.items())})"


def _signed(seconds: float) -> str:
    if abs(seconds) < 1:
        return "+0s"
    return f"{'-' if seconds < 0 else '+'}{length(abs(seconds))}"


def _row(run: RunWhatIf) -> tuple[str, ...]:
    return (
        str(run.run_id),
        f"{run.created_at:%Y-%m-%d %H:%M:%S}",
        _end(run.was, run.was_degraded),
        _end(run.would_be, run.would_be_degraded),
        run.by,
        run.step or "-",
        run.why,
    )


def _end(status: str, is_degraded: bool) -> str:
    return "degraded" if status == "completed" and is_degraded else status


def _estimate(one: Estimate) -> str:
    after = f" after {one.failure}" if one.failure else ""
    what = {
        "first": f"'{one.place}'",
        "again": f"another attempt of '{one.place}'{after}",
        "repaired": f"'{one.place}' after its repair{after}",
        "decision": f"a person about '{one.place}'{after}",
    }[one.kind]
    did = "said retry" if one.kind == "decision" else "worked"
    return (
        f"{what}: {did} {one.worked:,} of {one.tried:,} times "
        f"(95% sure: {one.low:.0%} to {one.high:.0%}), used {pluralize(one.used, 'time')}"
    )
