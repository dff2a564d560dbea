"""`mulligan list`: the runs, newest first."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated

from mulligan.cli.output.full_screen import Screen
from mulligan.cli.output.tables import age, columns, cut, length, table_lines
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result
from mulligan.cli.words.options import AsJson, HomeFolder, pairs, service_at, where
from mulligan.cli.words.parameters import Flag, Option
from mulligan.errors import InputInvalid
from mulligan.service.authoring.values import parse_time
from mulligan.service.runs.views.run_list import (
    STATUSES,
    FailedStep,
    RunLine,
    RunPage,
    RunQuery,
    WaitReason,
    parse_statuses,
)
from mulligan.service.runs.views.run_view import RunView
from mulligan.service.service import Service

LIMIT = 50
HEADS = ("RUN", "STATUS", "AGE", "TIME", "WORKFLOW", "")
# The shortest width of the workflow column.
WORKFLOW_CHARS_MIN = 16
# How many commands that answer a waiting run are shown below the table.
COMMANDS_MAX = 5
# How many reasons of a wait one line shows.
REASONS_MAX = 2
# How often `--watch` draws: at least, and at most.
WATCH_SECONDS, WATCH_SECONDS_MIN = 2.0, 0.5


def list_runs(
    workflow: Annotated[list[str] | None, Option("NAME", "Only runs of this workflow (repeatable).")] = None,
    status: Annotated[
        list[str] | None,
        Option("STATUS", f"Only runs with this status (repeatable, or with commas): {', '.join(STATUSES)}."),
    ] = None,
    since: Annotated[
        str | None, Option("TIME", "Only runs started since then: 2h, 7d, 2026-11-01, 2026-11-01T08:00.")
    ] = None,
    until: Annotated[str | None, Option("TIME", "Only runs started before then.")] = None,
    inputs: Annotated[
        list[str] | None, Option("KEY=VALUE", "Only runs with this input (repeatable).", "--input", "-i")
    ] = None,
    label: Annotated[list[str] | None, Option("KEY=VALUE", "Only runs with this label (repeatable).")] = None,
    who: Annotated[list[str] | None, Option("NAME", "Only runs that this user started (repeatable).")] = None,
    text: Annotated[
        str | None, Option("WORDS", "Only runs with these words in their name, labels, inputs or failures.")
    ] = None,
    failure: Annotated[
        list[str] | None, Option("CODE", "Only runs that failed with this code (repeatable): TIMEOUT.")
    ] = None,
    with_children: Annotated[bool, Flag("Also show called runs, below their callers.", "--all")] = False,
    limit: Annotated[int, Option("N", "How many runs to show at most.", "--limit", "-n", show_default=True)] = LIMIT,
    after: Annotated[int | None, Option("RUN", "The page after this run: only older ones.")] = None,
    watch: Annotated[bool, Flag("Update the list until Ctrl-C (on a terminal).", "--watch", "-w")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first, with their status and why they failed.

    Unfinished runs are shown with what they wait for. TIME is that of the whole run, to its end or until now. A time
    without a zone is local, and a day begins at 00:00.
    """
    now = datetime.now(UTC)
    query = RunQuery(
        statuses=_statuses(status or ()),
        workflows=tuple(workflow or ()),
        since=None if since is None else parse_time(since, now),
        until=None if until is None else parse_time(until, now),
        inputs=pairs(inputs, "input", "-i name=value"),
        labels=pairs(label, "label", "--label name=value"),
        starters=tuple(who or ()),
        failure_codes=tuple(failure or ()),
        text=text or "",
        with_children=with_children,
        limit=limit,
        before=after,
    )
    if after is not None and after < 1:
        raise UsageRefused(f"--after must be the number of a run, not {after}", hint="the last one of the page before")
    if limit < 1:
        raise UsageRefused(f"--limit must be at least 1, not {limit}")
    screen = _screen(as_json=as_json) if watch else None
    with service_at(home) as service:
        if screen is not None:
            screen.repeat(service, lambda: _picture(service, query, home), WATCH_SECONDS, WATCH_SECONDS_MIN)
            return
        found = service.runs.page(query)
        if as_json:
            show_result(found.runs)
            return
        for line in table_lines(HEADS, _rows(found, where(home))):
            show(line)
        for line in _below(service, query, found, home):
            complain(line)


def _screen(*, as_json: bool) -> Screen:
    if as_json:
        raise UsageRefused("--watch and --json cannot be combined", hint="give one of them")
    return Screen.of_stdout("--watch")


def _statuses(words: Iterable[str]) -> tuple[str, ...]:
    try:
        return parse_statuses(words)
    except InputInvalid as error:
        raise UsageRefused(error.message, hint=error.hint) from None


def _picture(service: Service, query: RunQuery, home: str | None) -> list[str]:
    found = service.runs.page(query)
    return [*table_lines(HEADS, _rows(found, where(home))), *_below(service, query, found, home)]


# -- a line of the table ---------------------------------------------------------------------------------------------


def _rows(page: RunPage, place: str) -> list[tuple[str, ...]]:
    now, depths = datetime.now(UTC), _depths(page.runs)
    # A long name must leave room for the notes.
    chars_max = max(WORKFLOW_CHARS_MIN, columns() // 5) if sys.stdout.isatty() else None
    return [_row(run, depths[run.run_id], now, place, chars_max) for run in page.runs]


def _depths(runs: Iterable[RunLine]) -> dict[int, int]:
    """How many callers of each run are listed above it. A caller comes before the runs that it called."""
    depths: dict[int, int] = {}
    for run in runs:
        above = -1 if run.parent_run_id is None else depths.get(run.parent_run_id, -1)
        depths[run.run_id] = above + 1
    return depths


def _row(run: RunLine, depth: int, now: datetime, place: str, workflow_chars_max: int | None) -> tuple[str, ...]:
    notes = [*_notes(run, place)]
    if run.parent_run_id is not None and not depth:
        notes.append(f"child of run {run.parent_run_id}")
    name = f"{'  ' * depth}{run.run_id}"
    workflow = run.workflow if workflow_chars_max is None else cut(run.workflow, workflow_chars_max)
    return (
        name,
        "damaged" if run.damage else run.status,
        # Its times may be what cannot be read.
        "" if run.damage else age(run.created_at, now),
        "" if run.damage else length(run.seconds),
        workflow,
        "; ".join(notes),
    )


def _notes(run: RunLine, place: str) -> Iterator[str]:
    """Why it failed, what it waits for, its driver, its round, its reason."""
    if run.damage:
        yield f"cannot be read: {run.damage}; remove it: mulligan remove {run.run_id}"
        return
    if run.failure is not None:
        yield first_failure(run.failure)
    yield from (_describe(run, wait, place) for wait in _main_reasons(run))
    if run.driver is not None:
        yield driven_by(run.driver.pid, run.driver.host)
    if run.round > 1:
        yield f"round {run.round}"
    if run.degraded:
        yield "degraded"
    # The reason of a pause is shown already.
    if run.reason and run.status != "paused":
        yield run.reason


def first_failure(failure: FailedStep) -> str:
    """`'fetch' failed with EXIT_NONZERO 7: no route (and 6 more)`."""
    more = f" (and {failure.count - 1:,} more)" if failure.count > 1 else ""
    return f"'{failure.step}' failed with {failure.text}{more}"


def _main_reasons(run: RunLine) -> list[WaitReason]:
    """The most important reasons. A missing driver is left out if something is asked for: that drives the run."""
    kinds = {wait.kind for wait in run.waiting_for}
    has_question = bool(kinds & {"approval", "triage", "event"}) and run.status != "paused"
    waits = [wait for wait in run.waiting_for if wait.kind != "driver" or not has_question]
    return waits[:REASONS_MAX]


def _describe(run: RunLine, wait: WaitReason, place: str) -> str:
    if wait.kind == "driver" and run.parent_run_id is None:
        return f"{wait.text}: mulligan resume {run.run_id}{place}"
    if wait.kind == "step_pause" and wait.count == 1:
        return f"{wait.text}: mulligan resume {wait.run_id} {shlex.quote(wait.place)}{place}"
    return wait.text


def driven_by(pid: int, host: str) -> str:
    return f"driven by process {pid} on {host}"


def driven(run: RunView, place: str) -> str:
    """The driver of an unfinished run, or what to do if there is none."""
    if run.driver:
        return driven_by(run.driver.pid, run.driver.host)
    if run.parent_run_id is not None:
        return "nothing is running it"
    return f"nothing is running it; to run it here: mulligan resume {run.run_id}{place}"


# -- below the table -------------------------------------------------------------------------------------------------


def _below(service: Service, query: RunQuery, page: RunPage, home: str | None) -> Iterator[str]:
    """Why the list is empty, how to answer what waits for a person, and whether there are more runs."""
    if not page.runs:
        is_chosen = query != RunQuery(with_children=query.with_children, limit=query.limit)
        yield "no matching runs" if is_chosen else f"no runs in {service.home.place}"
    commands = [*_commands(page, where(home))]
    yield from commands[:COMMANDS_MAX]
    if len(commands) > COMMANDS_MAX:
        yield f"{len(commands) - COMMANDS_MAX:,} more wait for a person: mulligan pending{where(home)}"
    if page.next is not None and query.limit == LIMIT:
        yield f"there are older runs: --after {page.next}, or more at once: --limit {LIMIT * 2}"


def _commands(page: RunPage, place: str) -> Iterator[str]:
    seen: set[tuple[int, str]] = set()
    for run in page.runs:
        for wait in run.waiting_for:
            command = answering_command(run, wait)
            if command and (wait.run_id, wait.place) not in seen:
                seen.add((wait.run_id, wait.place))
                yield f"run {run.run_id}: {command}{place}"


def answering_command(run: RunLine, wait: WaitReason) -> str:
    """The command that answers something that waits for a person; "" if no person is asked."""
    if wait.kind == "pause":
        return f"mulligan resume {run.run_id}" if run.parent_run_id is None else ""
    if wait.kind not in ("approval", "triage"):
        return ""
    if wait.count > 1:
        return "mulligan pending"
    target = f"{wait.run_id} {shlex.quote(wait.name or wait.place)}"
    if wait.kind == "approval":
        return f"mulligan approve {target} --reason TEXT"
    return f"mulligan classify {target} retry|fail --reason TEXT"
