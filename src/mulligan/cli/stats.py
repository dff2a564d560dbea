"""`mulligan stats`: what the rungs of the ladder were good for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from mulligan.cli.options import AsJson, HomeFolder, service_at
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.tables import cut, length, show_table
from mulligan.cli.terminal import UsageRefused, complain, show_json
from mulligan.service import RungStats, describe_rung, parse_duration, to_json

HEADS = ("WORKFLOW", "STEP", "TRIED", "WORKED", "SHARE", "EACH", "RUNG")
# A pattern may be long, and of several lines.
RUNG_CHARS_MAX = 120
TRIED_NOTHING = "no retry, handler, triage or route was tried"


def show_stats(
    run: Annotated[str | None, Argument(metavar="RUN", help="One run; else all of them.")] = None,
    workflow: Annotated[str | None, Option("--workflow", metavar="NAME", help="Only runs of this workflow.")] = None,
    since: Annotated[
        str | None,
        Option("--since", metavar="TIME", help="Only runs begun in the last so many hours or days: 12h, 7d."),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show how often retries, handlers, triage and routes helped.

    Per step, how often each was tried, how often it worked, how long it took on average: of one run, or over all.
    """
    if run is not None and not (workflow is None and since is None):
        raise UsageRefused(f"run {run} is one run: --workflow and --since choose among many")
    begun = datetime.now(UTC) - timedelta(seconds=parse_duration(since)) if since is not None else None
    with service_at(home) as service:
        run_id = None if run is None else service.find_run(run)
        found = service.stats(run_id, workflow=workflow, since=begun)
    if as_json:
        show_json(to_json(found))
        return
    if not found:
        complain(_nothing(run_id, workflow, since))
    show_table(HEADS, [_row(line) for line in found])


def _nothing(run: int | None, workflow: str | None, since: str | None) -> str:
    if run is not None:
        return f"{TRIED_NOTHING} in run {run}"
    of = "" if workflow is None else f" of '{workflow}'"
    return f"{TRIED_NOTHING} in any run{of}" + ("" if since is None else f" begun in the last {since}")


def _row(line: RungStats) -> tuple[str, ...]:
    return (
        line.workflow,
        line.step,
        f"{line.tried:,}".rjust(len("TRIED")),
        f"{line.worked:,}".rjust(len("WORKED")),
        f"{line.share:.0%}".rjust(len("SHARE")),
        _each(line.average_seconds),
        cut(describe_rung(line), RUNG_CHARS_MAX),
    )


def _each(seconds: float | None) -> str:
    """How long one took; nothing is known of what has not come to anything yet."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f}ms" if seconds < 0.1 else length(seconds)
