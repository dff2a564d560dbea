"""`mulligan show` and `mulligan items`: one run, step by step, and one map step, item by item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mulligan.cli.listing import driven
from mulligan.cli.options import AsJson, HomeFolder, RunId, StepName, service_at, where
from mulligan.cli.tables import age, counted, cut, length, memory, show_table
from mulligan.cli.terminal import complain, show, show_json
from mulligan.service.overview import in_a_line, items, overview

_VALUE_CHARS_MAX = 24


def show_run(run: RunId, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Show a run: its steps, what failed, what is waited for."""
    with service_at(home) as service:
        found = overview(service, run)
    if as_json:
        show_json(found)
        return
    show(_headline(found))
    rows = [_row(name, step) for name, step in (*found["steps"].items(), *_end(found))]
    show_table(("STEP", "STATUS", "TRIES", "TIME", "MEMORY", ""), rows)
    for line in _tree(found["children"], 0):
        show(line)
    for name, value in found["outputs"].items():
        show(f"output {name}: {cut(json.dumps(value), 200)}")
    for hint in _hints(found, where(home)):
        complain(hint)


def list_items(run: RunId, step: StepName, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """List the items of a map step, and what became of each."""
    with service_at(home) as service:
        found = items(service, run, step)
    if as_json:
        show_json(found)
        return
    if not found:
        complain(f"step '{step}' of run {run} has no items yet")
    show_table(("ITEM", "STATUS", "TRIES", "VALUE", ""), [_item_row(item) for item in found])


def _headline(run: dict[str, Any]) -> str:
    words = [run["status"]]
    words += ["degraded"] if run["degraded"] else []
    words += [f"round {run['round']}"] if run["round"] > 1 else []
    words += [f"child of run {run['parent_run_id']}"] if run["parent_run_id"] is not None else []
    words.append(f"started {age(datetime.fromisoformat(run['created_at']), datetime.now(UTC))} ago")
    reason = f": {run['reason']}" if run["reason"] else ""
    return f"run {run['run_id']} of '{run['workflow']}': {', '.join(words)}{reason}"


def _end(run: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """`end` is told where it did something, or is doing it."""
    end = run["end"]
    is_told = end is not None and (end["attempts"] or end["failure"])
    return [("end", end)] if is_told else []


def _row(name: str, step: dict[str, Any]) -> tuple[str, ...]:
    usage = step["usage"] or {}
    took = length(usage["wall_seconds"]) if usage else ""
    peak = memory(usage["peak_memory"]) if usage.get("peak_memory") else ""
    tries = str(step["attempts"]) if step["attempts"] else ""
    return name, step["status"], tries, took, peak, "; ".join(_remarks(step))


def _remarks(step: dict[str, Any]) -> Iterator[str]:
    if step["visits"] > 1:
        yield f"visit {step['visits']}"
    if step["recovered"]:
        yield "recovered"
    if step["items"]:
        yield _items(step["items"])
    if step["failure"] and step["status"] != "completed":
        yield in_a_line(step["failure"]) + (", handled" if step["handled"] else "")
    for warning in step["warnings"]:
        yield f"warning: {in_a_line(warning)}"
    for wait in step["waiting_for"]:
        yield f"waits for {wait['text']}"


def _items(counts: dict[str, int]) -> str:
    told = [f"{counts[status]} {status}" for status in ("failed", "running", "cancelled") if counts[status]]
    return ", ".join([f"{counts['completed']} of {counted(counts['total'], 'item')} done", *told])


def _tree(children: list[dict[str, Any]], depth: int) -> Iterator[str]:
    for child in children:
        yield (
            f"{'  ' * depth}child run {child['run_id']} of '{child['workflow']}': {child['status']}"
            f" (attempt {child['attempt']} of '{child['step']}')"
        )
        yield from _tree(child["children"], depth + 1)


def _hints(run: dict[str, Any], place: str) -> Iterator[str]:
    """What to do next, for whoever looks at it."""
    run_id = run["run_id"]
    if run["status"] in ("failed", "cancelled"):
        yield f"the story: mulligan explain {run_id}{place}; another round: mulligan retry {run_id}{place}"
    elif run["status"] == "running":
        yield driven(run, place)
    yield from (asked for wait in run["waiting_for"] if (asked := question(run_id, wait, place)))


def question(run_id: int, wait: dict[str, Any], home: str) -> str:
    """The command that answers what a run waits for; nothing where no person is asked."""
    if wait["kind"] == "triage":
        return f"'{wait['place']}' is parked: mulligan classify {run_id} {wait['place']} retry|fail --reason TEXT{home}"
    if wait["kind"] == "approval":
        return f"'{wait['place']}' waits for an approval: mulligan approve {run_id} {wait['place']} --reason TEXT{home}"
    return f"it is paused: mulligan resume {run_id}{home}" if wait["kind"] == "pause" else ""


def _item_row(item: dict[str, Any]) -> tuple[str, ...]:
    value = item["item"] if isinstance(item["item"], str) else json.dumps(item["item"])
    failure = in_a_line(item["failure"]) if item["failure"] and item["status"] != "completed" else ""
    tries = str(item["attempts"]) if item["attempts"] else ""
    remark = "recovered" if item["recovered"] else failure
    return str(item["index"]), item["status"], tries, cut(value, _VALUE_CHARS_MAX), remark
