"""`mulligan schedule`: published workflows that are started on time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from mulligan.cli.output.tables import cut, length, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_json, show_result
from mulligan.cli.words.given_inputs import Inputs, InputsFile, given_inputs
from mulligan.cli.words.options import AsJson, By, HomeFolder, Reason, pairs, service_at, where
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.authoring.values import parse_time
from mulligan.service.rendering.formatting import format_input, pluralize
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.catalogue.texts import published_reference
from mulligan.service.server.schedules.forms import ScheduleForm, instant_text
from mulligan.service.server.schedules.schedules import Backfill, ScheduleView
from mulligan.service.service import Service

_WORDS = ("list", "show", "put", "pause", "resume", "backfill", "fire", "delete")
_USAGE = {
    "list": "write: mulligan schedule list",
    "fire": "write: mulligan schedule fire",
    "put": "write: mulligan schedule put NAME --workflow WORKFLOW --cron '30 2 * * *'",
    "backfill": "write: mulligan schedule backfill NAME --from 2026-11-01 --to 2026-11-08",
}
_OVERLAPS = ("skip", "queue", "cancel", "allow")
SHOWN_SKIPS = 5
SHOWN_NEXT = 5


def schedule(
    word: Annotated[str, Argument("|".join(_WORDS), "What to do.")],
    name: Annotated[str | None, Argument("NAME", "The name of the schedule.")] = None,
    workflow: Annotated[str | None, Option("NAME", "put: the published workflow; NAME@3 for one version.")] = None,
    cron: Annotated[str | None, Option("FIELDS", "put: when, such as '30 2 * * MON-FRI' or @daily.")] = None,
    timezone: Annotated[str | None, Option("ZONE", "put: the time zone of --cron (default UTC).")] = None,
    every: Annotated[str | None, Option("TIME", "put: in place of --cron, the time between two starts.")] = None,
    anchor: Annotated[str | None, Option("TIME", "put: from when --every is counted.")] = None,
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    label: Annotated[list[str] | None, Option("KEY=VALUE", "put: a label of its runs (repeatable).")] = None,
    catch_up: Annotated[str, Option("WHICH", "put: missed starts to make up for: none, last, all, all(20).")] = "last",
    overlap: Annotated[str, Option("HOW", "put: if a run has not ended: skip, queue, cancel, allow.")] = "skip",
    pause_after: Annotated[int | None, Option("N", "put: pause after so many failed runs in a row.")] = None,
    begin: Annotated[
        str | None, Option("TIME", "backfill: the beginning of the range, such as 2026-11-01.", "--from")
    ] = None,
    end: Annotated[str | None, Option("TIME", "backfill: the end of the range (default: now).", "--to")] = None,
    is_dry: Annotated[bool, Flag("put, backfill: say what would happen, and stop.", "--dry-run")] = False,
    reason: Reason = "",
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Start published workflows on time: list, show, put, pause, resume, backfill or delete schedules.

    `mulligan server` starts what is due; without one nothing is started by itself, and `fire` starts what is due at
    this moment. `put` creates a schedule or replaces it; -i day='${schedule.date}' is the date of each start.
    """
    if word not in _WORDS:
        raise UsageRefused(f"unknown subcommand '{word[:40]}' of schedule", hint=f"write one of: {', '.join(_WORDS)}")
    if (name is None) != (word in ("list", "fire")):
        hint = _USAGE.get(word, f"write: mulligan schedule {word} NAME")
        raise UsageRefused(f"'schedule {word}' has other arguments", hint=hint)
    with service_at(home, by) as service:
        if word == "fire":
            _fire(service, home, as_json=as_json)
        elif name is None:
            _list(service, home, as_json=as_json)
        elif word == "put":
            given = given_inputs(inputs, inputs_file)
            form = _form(workflow, cron, timezone, every, anchor, given, label, catch_up, overlap, pause_after)
            _show(service.schedules.put(name, form, dry_run=is_dry), home, as_json=as_json)
        elif word == "backfill":
            _backfill(service, name, begin, end, is_dry=is_dry, as_json=as_json)
        elif word == "delete":
            service.schedules.delete(name)
            if as_json:
                show_json({"name": name, "is_deleted": True})
            else:
                complain(f"schedule '{name}' is deleted; its runs stay")
        else:
            changed = {"pause": service.schedules.pause, "resume": service.schedules.resume}.get(word)
            found = changed(name, reason) if changed is not None else service.schedules.show(name)
            _show(found, home, as_json=as_json)


def _form(
    workflow: str | None,
    cron: str | None,
    timezone: str | None,
    every: str | None,
    anchor: str | None,
    inputs: dict[str, Any],
    label: list[str] | None,
    catch_up: str,
    overlap: str,
    pause_after: int | None,
) -> ScheduleForm:
    if workflow is None:
        raise UsageRefused("a schedule needs a workflow", hint=_USAGE["put"])
    if overlap not in _OVERLAPS:
        raise UsageRefused(f"--overlap '{overlap}' is not known", hint=f"one of {', '.join(_OVERLAPS)}")
    name, version = published_reference(workflow) or (workflow, None)
    return ScheduleForm(
        workflow=name,
        version=version,
        cron=cron,
        timezone=timezone,
        every=every,
        anchor=anchor,
        inputs=inputs,
        labels=pairs(label, "label", "--label name=value"),
        catch_up=catch_up,
        overlap=overlap,  # type: ignore[arg-type]
        pause_after=pause_after,
    )


def _list(service: Service, home: str | None, *, as_json: bool) -> None:
    found = service.schedules.all()
    if as_json:
        show_json({"schedules": to_json(found), "next": None})
    elif not found:
        complain(f"there is no schedule; {_USAGE['put']}{where(home)}")
    else:
        heads = ("SCHEDULE", "WORKFLOW", "WHEN", "NEXT", "LAST", "")
        show_table(heads, [_row(one) for one in found])


def _fire(service: Service, home: str | None, *, as_json: bool) -> None:
    """Start what is due now, and say which runs that are."""
    before = {(one.name, each.run_id) for one in service.schedules.all() for each in one.active}
    service.schedules.fire_due(service.now())
    found = service.schedules.all()
    started = [
        {"schedule": one.name, "instant": instant_text(each.instant), "run_id": each.run_id}
        for one in found
        for each in one.active
        if (one.name, each.run_id) not in before
    ]
    if as_json:
        show_json({"started": started})
        return
    for row in started:
        show(f"schedule '{row['schedule']}': run {row['run_id']}, of {row['instant']}")
    if not started:
        complain("nothing is due")
    else:
        complain(f"a worker runs them; to run one here: mulligan resume {started[0]['run_id']}{where(home)}")


def _row(one: ScheduleView) -> tuple[str, ...]:
    coming = instant_text(one.next[0]) if one.next else "-"
    last = f"run {one.last.run_id}" if one.last else "-"
    note = "paused" if one.is_paused else f"{one.waiting} waiting" if one.waiting else ""
    return one.name, _workflow(one), _when(one), coming, last, note


def _workflow(one: ScheduleView) -> str:
    return one.workflow if one.version is None else f"{one.workflow}@{one.version}"


def _when(one: ScheduleView) -> str:
    return f"{one.cron} {one.timezone}" if one.cron else f"every {length(one.every or 0)}"


def _show(one: ScheduleView, home: str | None, *, as_json: bool) -> None:
    if as_json:
        show_result(one)
        return
    show(f"schedule '{one.name}'{' (not written: a dry run)' if one.dry_run else ''}")
    for title, text in _lines(one, home):
        show(f"  {title:<12} {text}")


def _lines(one: ScheduleView, home: str | None) -> list[tuple[str, str]]:
    lines = [("workflow", _workflow(one)), ("when", _when(one))]
    if one.inputs:
        lines.append(("inputs", ", ".join(f"{name}={format_input(value)}" for name, value in one.inputs.items())))
    rules = f"catch up {one.catch_up}, overlap {one.overlap}"
    rules += f", paused after {pluralize(one.pause_after, 'failure')} in a row" if one.pause_after else ""
    lines.append(("rules", rules))
    if one.is_from_file:
        lines.append(("belongs to", f"the text of workflow '{one.workflow}'"))
    if one.pause is not None:
        who = "by itself" if one.pause.is_automatic else f"by {one.pause.by}"
        why = f": {one.pause.reason}" if one.pause.reason else ""
        lines.append(("paused", f"{who} at {_time(one.pause.at)}{why}"))
        lines.append(("", f"it stays paused until somebody types: mulligan schedule resume {one.name}{where(home)}"))
    for number, at in enumerate(one.next[:SHOWN_NEXT]):
        lines.append(("next" if not number else "", f"{_time(at)}{_inputs_of(one.next_inputs, number)}"))
    if one.last is not None:
        lines.append(("last", f"run {one.last.run_id}, of {_time(one.last.instant)}"))
    if one.active:
        lines.append(("active", ", ".join(f"run {each.run_id}" for each in one.active)))
    if one.waiting:
        lines.append(("waiting", pluralize(one.waiting, "start")))
    for each in one.skips[-SHOWN_SKIPS:]:
        until = f" to {_time(each.until)}" if each.until else ""
        lines.append(("skipped", f"{_time(each.instant)}{until}: {cut(each.reason, 200)}"))
    return lines


def _inputs_of(found: tuple[dict[str, Any], ...], number: int) -> str:
    """What a start gets for its instant: `  day=2026-11-16`."""
    texts = [f"{name}={format_input(value)}" for name, value in found[number].items()] if found else []
    return f"  {cut(', '.join(texts), 200)}" if texts else ""


def _time(at: datetime) -> str:
    return instant_text(at.replace(microsecond=0))


def _backfill(service: Service, name: str, begin: str | None, end: str | None, *, is_dry: bool, as_json: bool) -> None:
    if begin is None:
        raise UsageRefused("a backfill needs the beginning of its range", hint=_USAGE["backfill"])
    now = datetime.now(UTC)
    until = parse_time(end, now) if end is not None else now
    found = service.schedules.backfill(name, parse_time(begin, now), until, dry_run=is_dry)
    if as_json:
        show_result(found)
        return
    show(_backfill_text(found))
    for number, instant in enumerate(found.instants if is_dry else ()):
        show(f"  {instant_text(instant)}{_inputs_of(found.inputs, number)}")


def _backfill_text(found: Backfill) -> str:
    if not found.instants:
        if found.with_run:
            return f"nothing to start: each instant of '{found.name}' in this range has a run already"
        return f"schedule '{found.name}' has no start in this range"
    count = pluralize(len(found.instants), "start")
    has = "has" if found.with_run == 1 else "have"
    others = f"; {pluralize(found.with_run, 'other instant')} {has} a run already" if found.with_run else ""
    if found.dry_run:
        return f"a backfill of '{found.name}' would be {count}{others}"
    pause = "; the schedule is paused, so they wait until it is resumed" if found.is_paused else ""
    return f"{count} of '{found.name}' will be made{others}{pause}"
