"""`mulligan logs` and `mulligan events`: what attempts wrote, and the events of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import msgspec

from mulligan.cli.output.tables import cut
from mulligan.cli.output.terminal import INTERRUPTED, UsageRefused, complain, show, show_json, show_written
from mulligan.cli.words.options import LATEST, AsJson, HomeFolder, NewestRun, find_run_and_step, service_at, where
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.core.model.place_keys import step_name
from mulligan.formats import systems_with_logs
from mulligan.service.logs.log_following import LogPiece, LogSelection
from mulligan.service.logs.log_levels import LEVELS, LevelFilter
from mulligan.service.rendering.json_output import log_lines_to_json, to_json
from mulligan.service.runs.stored.run_reader import AttemptLog
from mulligan.service.service import Service

_DETAIL_CHARS_MAX = 60
# Many lines are written at once, since a large run has a million events.
_LINES_AT_ONCE = 1000
# Number, time to the second, type, place: in a third of the time that an f-string takes.
_COLUMNS = "%5d %.19sZ %-18s %-12s"
# Fields that have their own columns, and fields that are too large for a line.
_NOT_DETAILS = frozenset(
    "type step place definition inputs outputs bindings kept items usage version cwd summary".split()
)


def logs(
    run: NewestRun = LATEST,
    step: Annotated[str | None, Argument("STEP", "The name of a step.")] = None,
    item: Annotated[str | None, Option("I", "Only this item of a map step, by index or name.")] = None,
    attempt: Annotated[int | None, Option("N", "The number of the attempt (default: the last).")] = None,
    handler: Annotated[bool, Flag("Show what the failure handler wrote.")] = False,
    script: Annotated[bool, Flag("Show what the recovery script wrote.")] = False,
    follow: Annotated[
        bool, Flag("Follow the logs, through retries; without STEP those of the whole run.", "--follow", "-f")
    ] = False,
    level: Annotated[
        str | None, Option("LEVEL", "Only what was logged from this level on: debug, info, warning, error, critical.")
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Print what the attempts of a step wrote, even while they run. Without STEP: of what failed, or ran last.

    Stdout goes to stdout, stderr to stderr. STEP may also be a part of a step, such as 'build.undo@1'. --follow ends
    when the step, or the run, has ended. With --level, only what was logged.
    """
    if level is not None and (level := level.lower()) not in LEVELS:
        raise UsageRefused(f"--level is one of {', '.join(LEVELS)}, not '{level}'")
    if handler and script:
        raise UsageRefused("--handler and --script cannot be combined", hint="give one of them")
    part: Any = "handler" if handler else "script" if script else "own"
    with service_at(home) as service:
        run_id, named = find_run_and_step(service, run, step)
        named = service.runs.find_place(run_id, named)
        index = service.runs.find_items(run_id, named, [item])[0] if item is not None and named else None
        if follow:
            wanted = LogSelection(named, index, attempt, part)
            if not named and (item is not None or wanted != LogSelection()):
                raise UsageRefused("--item, --attempt, --handler and --script need a step", hint="name a STEP")
            return _follow(service, run_id, wanted, level=level, as_json=as_json, place=where(home))
        more = 0
        if named:
            found = service.logs.step_logs(run_id, named, item=index, attempt=attempt, part=part)
        elif item is not None or attempt is not None or part != "own":
            raise UsageRefused("--item, --attempt, --handler and --script need a step", hint="name a STEP")
        else:
            found, more = service.logs.first_logs(run_id)
        called = service.runs.called(run_id)
        names = service.runs.name_places(run_id, [log.place for log in found])
    shown = found if level is None else [_at_level(log, level) for log in found]
    if as_json:
        show_json([{"run_id": run_id, "step": named or step_name(log.place), **to_json(log)} for log in shown])
        return 0
    if not found:
        complain(f"no step of run {run_id} has run: mulligan show {run_id}{where(home)}")
    for log, whole in zip(shown, found, strict=True):
        why = _why_empty(whole, called, where(home)) or _why_empty_at(log, level)
        complain(f"-- run {run_id}, '{names[log.place]}', attempt {log.attempt}{why}")
        show_written(log.stdout, sys.stdout)
        show_written(log.stderr, sys.stderr)
    if more:
        complain(f"-- {more} more failed: mulligan show {run_id}{where(home)}")
    return 0


def _at_level(log: AttemptLog, level: str) -> AttemptLog:
    return msgspec.structs.replace(log, stdout=b"", stderr=LevelFilter(level).keep(log.stderr))


def _why_empty_at(log: AttemptLog, level: str | None) -> str:
    return "" if level is None or log.stderr else f": nothing was logged at {level} or above"


def _follow(
    service: Service, run_id: int, wanted: LogSelection, *, level: str | None, as_json: bool, place: str
) -> int:
    """Print what is written while it is written. Ctrl-C stops only this command."""
    filters: dict[tuple[str, int], LevelFilter] = {}
    try:
        for piece in service.logs.follow_logs(run_id, wanted, by_line=as_json or level is not None):
            if level is not None and piece.stream is not None:
                kept = b""
                if piece.stream == "stderr":
                    key = (piece.where, piece.attempt)
                    kept = filters.setdefault(key, LevelFilter(level)).keep(piece.data)
                if not kept:
                    continue
                piece = msgspec.structs.replace(piece, data=kept)
            if as_json:
                for line in log_lines_to_json(piece):
                    show(json.dumps(line))
            else:
                _show_piece(piece, place, is_named=wanted.is_among_others(piece.place))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _show_piece(piece: LogPiece, place: str, *, is_named: bool) -> None:
    """`is_named`: each line begins with the name of its place."""
    stream = sys.stderr if piece.stream == "stderr" else sys.stdout
    if piece.stream is not None and is_named:
        name = f"{piece.where} | ".encode()
        show_written(b"".join(name + line for line in piece.data.splitlines(keepends=True)), stream)
    elif piece.stream is not None:
        show_written(piece.data, stream)
    elif not piece.place:
        complain(f"-- run {piece.run_id}: {piece.text}: mulligan resume {piece.run_id}{place}")
    elif piece.text or not is_named or piece.attempt > 1:
        complain(
            f"-- run {piece.run_id}, '{piece.name}', attempt {piece.attempt}" + (f": {piece.text}" * bool(piece.text))
        )


def _why_empty(log: AttemptLog, called: Mapping[tuple[str, int], int], place: str) -> str:
    """Why there is nothing to read; for a step that called a run, where its steps are."""
    if log.stdout or log.stderr:
        return ""
    if child := called.get((log.place, log.attempt)):
        return f": it called run {child}, whose steps have their own logs: mulligan show {child}{place}"
    return f": it wrote nothing, or only {log.ran_on} has its log" if log.ran_on else ": it wrote nothing"


def events(
    run: NewestRun = LATEST,
    named_as: Annotated[
        str | None, Option("SYSTEM", "Print JSON lines with the names of that system: noetl.", "--as")
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print the events of a run, one per line.

    With --json they are printed as they are stored.
    """
    if named_as is not None and named_as not in (systems := systems_with_logs()):
        raise UsageRefused(f"'{named_as}' has no names for events", hint=f"systems that have: {', '.join(systems)}")
    with service_at(home) as service:
        run_id = service.runs.find(run)
        if named_as is not None:
            lines: Iterator[str] = (
                json.dumps(line, ensure_ascii=False) for line in service.runs.foreign_events(run_id, named_as)
            )
        else:
            stored = (line.decode() for line in service.logs.event_lines(run_id))
            lines = stored if as_json else map(_describe, service.logs.plain_events(run_id))
        while some := list(islice(lines, _LINES_AT_ONCE)):
            show("\n".join(some))


def _describe(entry: dict[str, Any]) -> str:
    fact = entry["fact"]
    where = fact.get("step") or fact.get("place") or ""
    line = _COLUMNS % (entry["seq"], entry["at"], fact["type"], where)
    for name, value in fact.items():
        if name not in _NOT_DETAILS:
            # A million events have mostly whole numbers and short words.
            kind = type(value)
            if kind is int or (kind is str and _is_word(value)):
                line += f" {name}={value}"
            elif name != "route" or value.get("to"):
                line += f" {_detail(name, value)}"
    return line.rstrip()


def _is_word(text: str) -> bool:
    """Whether `cut` would leave it as it is: short, and no white space in it."""
    return len(text) <= _DETAIL_CHARS_MAX and text.isprintable() and " " not in text


def _detail(name: str, value: Any) -> str:
    """A field of a fact in a few words: of a failure its code, of a route its target."""
    if name == "failure":
        return f"failure={cut(value['code'], _DETAIL_CHARS_MAX)}"
    if name == "route":
        return f"route={value['to']}"
    return f"{name}={cut(value if isinstance(value, str) else _json(value), _DETAIL_CHARS_MAX)}"


def _json(value: Any) -> str:
    """As `json.dumps`, which takes longer than all the rest of a line, for what most events have."""
    if type(value) is bool:
        return "true" if value else "false"
    return repr(value) if type(value) is list and all(type(one) is int for one in value) else json.dumps(value)
