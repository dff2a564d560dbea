"""`mulligan stats`: how often each rung of the ladder was tried and worked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from mulligan.cli.output.tables import cut, length, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result
from mulligan.cli.words.options import AsJson, HomeFolder, service_at
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.authoring.values import parse_duration
from mulligan.service.runs.statistics.stats import AgentStats, RungStats, describe_rung

HEADS = ("WORKFLOW", "STEP", "TRIED", "WORKED", "SHARE", "EACH", "RUNG")
# A pattern may be long and have several lines.
RUNG_CHARS_MAX = 120
TRIED_NOTHING = "no retry, handler, triage or route was tried"
AGENT_HEADS = ("WORKFLOW", "AGENT", "DECIDED", "RIGHT", "SHARE", "WRONG", "SUGGESTED", "FOLLOWED", "NO ANSWER")
DECIDED_NOTHING = "no agent was asked about a failure"


def show_stats(
    run: Annotated[str | None, Argument("RUN", "The number of a run (default: all runs).")] = None,
    workflow: Annotated[str | None, Option("NAME", "Only runs of this workflow.")] = None,
    since: Annotated[str | None, Option("TIME", "Only runs started within this time: 12h, 7d.")] = None,
    agents: Annotated[bool, Flag("Only agents that decide about failures.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show how often retries, handlers, triage and routes helped.

    For each step: how often each was tried and worked, and how long it took on average; of one run, or over all runs.
    Then how often agents that decide about failures were right; with --json they are shown by --agents.
    """
    if run is not None and not (workflow is None and since is None):
        raise UsageRefused(
            "--workflow and --since cannot be combined with a run", hint="leave out the run or the options"
        )
    begun = datetime.now(UTC) - timedelta(seconds=parse_duration(since)) if since is not None else None
    with service_at(home) as service:
        run_id = None if run is None else service.runs.find(run)
        found = [] if agents else service.runs.stats(run_id, workflow=workflow, since=begun)
        asked = [] if as_json and not agents else service.runs.agent_stats(run_id, workflow=workflow, since=begun)
    if as_json:
        show_result(asked if agents else found)
        return
    if not (asked if agents else found):
        complain(_nothing(DECIDED_NOTHING if agents else TRIED_NOTHING, run_id, workflow=workflow, since=since))
    if found:
        show_table(HEADS, [_row(line) for line in found])
    if found and asked:
        show("")
    if asked:
        show_table(AGENT_HEADS, [_agent_row(line) for line in asked])


def _nothing(what: str, run: int | None, *, workflow: str | None, since: str | None) -> str:
    if run is not None:
        return f"{what} in run {run}"
    of = "" if workflow is None else f" of '{workflow}'"
    return f"{what} in any run{of}" + ("" if since is None else f" started in the last {since}")


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


def _agent_row(line: AgentStats) -> tuple[str, ...]:
    wrong = [f"{line.failed_again:,} failed again"] if line.failed_again else []
    wrong += [f"{line.overruled:,} overruled"] if line.overruled else []
    return (
        line.workflow,
        line.agent,
        f"{line.decisions:,}".rjust(len("DECIDED")),
        f"{line.right:,}".rjust(len("RIGHT")),
        ("-" if line.share is None else f"{line.share:.0%}").rjust(len("SHARE")),
        ", ".join(wrong) or "0",
        f"{line.suggestions:,}".rjust(len("SUGGESTED")),
        f"{line.followed:,}".rjust(len("FOLLOWED")),
        f"{line.unanswered:,}".rjust(len("NO ANSWER")),
    )


def _each(seconds: float | None) -> str:
    """How long one took on average; "-" if none has ended."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f}ms" if seconds < 0.1 else length(seconds)
