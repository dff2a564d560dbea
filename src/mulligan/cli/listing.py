"""`mulligan list`: the runs there are, newest first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from mulligan.cli.options import AsJson, HomeFolder, service_at, where
from mulligan.cli.parameters import Option
from mulligan.cli.tables import age, show_table
from mulligan.cli.terminal import UsageRefused, complain, show_json
from mulligan.service.overview import run_list

STATUSES = ("running", "paused", "completed", "failed", "cancelled")


def list_runs(
    status: Annotated[
        list[str] | None, Option("--status", metavar="STATUS", help="Only these; may be given several times.")
    ] = None,
    with_children: Annotated[bool, Option("--all", help="Also runs that other runs called, below those.")] = False,
    limit: Annotated[int, Option("--limit", "-n", metavar="N", help="How many at most.", show_default=True)] = 50,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first: how they are, and who drives them."""
    _refuse(status or (), limit)
    with service_at(home) as service:
        statuses = [*(status or ()), *(["new"] if "running" in (status or ()) else [])]
        found = run_list(service, limit=limit, statuses=statuses, with_children=with_children)
    if as_json:
        show_json(found)
        return
    if not found:
        complain(f"no runs in '{service.home.folder}'" if not status else "no such runs")
    now, depths = datetime.now(UTC), _depths(found)
    rows = [_row(run, depths[run["run_id"]], now, where(home)) for run in found]
    show_table(("RUN", "STATUS", "AGE", "WORKFLOW", ""), rows)


def _depths(runs: list[dict[str, Any]]) -> dict[int, int]:
    """How far below the first of its callers that is listed each run stands. A caller comes before whom it called."""
    depths: dict[int, int] = {}
    for run in runs:
        depths[run["run_id"]] = depths.get(run["parent_run_id"], -1) + 1
    return depths


def _refuse(statuses: list[str] | tuple[str, ...], limit: int) -> None:
    unknown = next((status for status in statuses if status not in STATUSES), None)
    if unknown is not None:
        raise UsageRefused(f"'{unknown}' is no status of a run", hint=f"there are {', '.join(STATUSES)}")
    if limit < 1:
        raise UsageRefused(f"--limit is at least 1, not {limit}")


def _row(run: dict[str, Any], depth: int, now: datetime, place: str) -> tuple[str, ...]:
    started, name = datetime.fromisoformat(run["created_at"]), f"{'  ' * depth}{run['run_id']}"
    notes = _notes(run, place)
    if run["parent_run_id"] is not None and not depth:
        notes.append(f"child of run {run['parent_run_id']}")
    return name, run["status"], age(started, now), run["workflow"], "; ".join(notes)


def _notes(run: dict[str, Any], place: str) -> list[str]:
    """What else is worth a word: whom it waits for, who drives it, what it was."""
    is_over = run["status"] in ("completed", "failed", "cancelled")
    notes = [_asking(run["asks"], place)] if run["asks"] else []
    if not is_over and (run["driver"] or not run["asks"] or run["status"] == "paused"):
        notes.append(driven(run, place))
    if run["round"] > 1:
        notes.append(f"round {run['round']}")
    if run["degraded"]:
        notes.append("degraded")
    if run["reason"]:
        notes.append(run["reason"])
    return notes


def _asking(asks: list[dict[str, Any]], place: str) -> str:
    """Whoever has to decide finds all of it elsewhere."""
    if len(asks) == 1 and asks[0]["kind"] == "paused":
        return f"step '{asks[0]['place']}' is paused: mulligan resume {asks[0]['run_id']} {asks[0]['place']}{place}"
    who = f"'{asks[0]['place']}' waits" if len(asks) == 1 else f"{len(asks):,} steps wait"
    return f"{who} for a person: mulligan pending{place}"


def driven(run: dict[str, Any], place: str) -> str:
    """Who drives a run that has not ended, or what to do where nobody does."""
    if run["driver"]:
        return f"driven by process {run['driver']['pid']} on {run['driver']['host']}"
    if run["parent_run_id"] is not None:
        return "nobody drives it"
    return f"nobody drives it: mulligan resume {run['run_id']}{place}"
