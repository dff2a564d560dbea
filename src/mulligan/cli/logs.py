"""`mulligan logs` and `mulligan events`: what attempts wrote, and what the engine did."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from mulligan.cli.options import LATEST, AsJson, HomeFolder, NewestRun, find_run_and_step, service_at, where
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.tables import cut
from mulligan.cli.terminal import UsageRefused, complain, show, show_json, show_written
from mulligan.service.logs import event_lines, step_logs
from mulligan.service.noetl_log import noetl_events
from mulligan.service.reading import AttemptLog

_NOETL = "noetl"
_DETAIL_CHARS_MAX = 60
# A large run has a million events: each is not worth a write of its own.
_LINES_AT_ONCE = 1000
# What is told in columns of its own, and what is too large for a line.
_TOLD = ("type", "step", "place")
_LONG = (
    "definition",
    "inputs",
    "outputs",
    "bindings",
    "failure",
    "kept",
    "items",
    "usage",
    "route",
    "version",
    "cwd",
    "summary",
)


def logs(
    run: NewestRun = LATEST,
    step: Annotated[str | None, Argument(metavar="STEP", help="The name of a step.")] = None,
    item: Annotated[int | None, Option("--item", metavar="I", help="Of one item of a map step.")] = None,
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", help="Of this attempt; by default of the last.")
    ] = None,
    handler: Annotated[bool, Option("--handler", help="What its failure handler wrote.")] = False,
    script: Annotated[bool, Option("--script", help="What its recovery script wrote.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print what the attempts of a step wrote, also while they run.

    Stdout goes to stdout, stderr to stderr. STEP may also be a part of a step, such as 'build.undo@1'.
    """
    if handler and script:
        raise UsageRefused("--handler and --script are two questions", hint="ask one of them")
    part: Any = "handler" if handler else "script" if script else "own"
    with service_at(home) as service:
        run_id, named = find_run_and_step(service, run, step)
        if not named:
            raise UsageRefused(
                "missing argument 'STEP'", hint=f"the steps of the run: mulligan show {run_id}{where(home)}"
            )
        found = step_logs(service, run_id, named, item=item, attempt=attempt, part=part)
    if as_json:
        show_json([_as_json(run_id, named, log) for log in found])
        return
    for log in found:
        complain(f"-- run {run_id}, '{log.place}', attempt {log.attempt}{_silence(log)}")
        show_written(log.stdout, sys.stdout)
        show_written(log.stderr, sys.stderr)


def _silence(log: AttemptLog) -> str:
    if log.stdout or log.stderr:
        return ""
    return f": there is no log of it here, it ran on {log.ran_on}" if log.ran_on else ": it wrote nothing"


def _as_json(run_id: int, step: str, log: AttemptLog) -> dict[str, Any]:
    written = {"stdout": log.stdout.decode("utf-8", "replace"), "stderr": log.stderr.decode("utf-8", "replace")}
    return {"run_id": run_id, "step": step, "place": log.place, "attempt": log.attempt, **written}


def events(
    run: NewestRun = LATEST,
    named_as: Annotated[
        str | None, Option("--as", metavar="SYSTEM", help="As JSON lines with the names of that system: noetl.")
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print the events of a run, one a line.

    With --json they come as they are kept.
    """
    if named_as not in (None, _NOETL):
        raise UsageRefused(f"events have no names of '{named_as}'", hint=f"there is '{_NOETL}'")
    with service_at(home) as service:
        run_id = service.find_run(run)
        if named_as:
            lines = (json.dumps(line, ensure_ascii=False) for line in noetl_events(service.events(run_id)))
        else:
            lines = (line.decode() if as_json else _told(json.loads(line)) for line in event_lines(service, run_id))
        while some := list(islice(lines, _LINES_AT_ONCE)):
            show("\n".join(some))


def _told(entry: dict[str, Any]) -> str:
    fact = entry["fact"]
    where = fact.get("step") or fact.get("place") or ""
    return f"{entry['seq']:>5} {entry['at'][:19]}Z {fact['type']:<18} {where:<12} {' '.join(_details(fact))}".rstrip()


def _details(fact: dict[str, Any]) -> Iterator[str]:
    for name, value in fact.items():
        if name in _LONG:
            yield from _of_long(name, value)
        elif name not in _TOLD:
            yield f"{name}={cut(value if isinstance(value, str) else json.dumps(value), _DETAIL_CHARS_MAX)}"


def _of_long(name: str, value: Any) -> Iterator[str]:
    """Of what is too large for a line: of a failure its code, of a route where it leads."""
    if name == "failure":
        yield f"failure={cut(value['code'], _DETAIL_CHARS_MAX)}"
    elif name == "route" and value.get("to"):
        yield f"route={value['to']}"
