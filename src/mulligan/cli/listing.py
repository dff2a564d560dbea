"""`mulligan list`: the runs there are, newest first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from mulligan.cli.options import AsJson, HomeFolder, service_at, where
from mulligan.cli.parameters import Option
from mulligan.cli.tables import age, show_table
from mulligan.cli.terminal import UsageRefused, complain, show_json
from mulligan.service.overview import listed

STATUSES = ("running", "paused", "completed", "failed", "cancelled")


def list_runs(
    status: Annotated[
        list[str] | None, Option("--status", metavar="STATUS", help="Only these; may be given several times.")
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", metavar="N", help="How many at most.", show_default=True)] = 50,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first: how they are, and who drives them."""
    _refuse(status or (), limit)
    with service_at(home) as service:
        statuses = [*(status or ()), *(["new"] if "running" in (status or ()) else [])]
        found = [listed(service, record) for record in service.runs(limit=limit, statuses=statuses)]
    if as_json:
        show_json(found)
        return
    if not found:
        complain(f"no runs in '{service.home.folder}'" if not status else "no such runs")
    now = datetime.now(UTC)
    show_table(("RUN", "STATUS", "AGE", "WORKFLOW", ""), [_row(run, now, where(home)) for run in found])


def _refuse(statuses: list[str] | tuple[str, ...], limit: int) -> None:
    unknown = next((status for status in statuses if status not in STATUSES), None)
    if unknown is not None:
        raise UsageRefused(f"'{unknown}' is no status of a run", hint=f"there are {', '.join(STATUSES)}")
    if limit < 1:
        raise UsageRefused(f"--limit is at least 1, not {limit}")


def _row(run: dict[str, Any], now: datetime, place: str) -> tuple[str, ...]:
    started = datetime.fromisoformat(run["created_at"])
    return str(run["run_id"]), run["status"], age(started, now), run["workflow"], "; ".join(_notes(run, place))


def _notes(run: dict[str, Any], place: str) -> list[str]:
    """What else is worth a word: who drives it, what it was, whose child it is."""
    is_over = run["status"] in ("completed", "failed", "cancelled")
    notes = [] if is_over else [driven(run, place)]
    if run["round"] > 1:
        notes.append(f"round {run['round']}")
    if run["degraded"]:
        notes.append("degraded")
    if run["reason"]:
        notes.append(run["reason"])
    if run["parent_run_id"] is not None:
        notes.append(f"child of run {run['parent_run_id']}")
    return notes


def driven(run: dict[str, Any], place: str) -> str:
    """Who drives a run that has not ended, or what to do where nobody does."""
    if run["driver"]:
        return f"driven by process {run['driver']['pid']} on {run['driver']['host']}"
    if run["parent_run_id"] is not None:
        return "nobody drives it"
    return f"nobody drives it: mulligan resume {run['run_id']}{place}"
