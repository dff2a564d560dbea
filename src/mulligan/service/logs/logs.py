"""The logs of attempts, by step, item and attempt; and the events of a run as they are stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NoReturn

import msgspec

from mulligan.core.model.codec import encode
from mulligan.core.model.events import RunStarted
from mulligan.core.model.place_keys import is_at_or_below, item_key, step_name
from mulligan.errors import NotFound
from mulligan.service.runs.stored.attempts import list_attempts
from mulligan.service.runs.stored.run_reader import AttemptLog, RunReader

Part = Literal["own", "handler", "script"]

# Logs that are shown if no step is named.
FIRST_LOGS_MAX = 5
# The marks in keys of places that are not attempts of the step or item itself.
_MARKS = {"handler": ".on_failure@", "script": ".script@"}
_CAUSE = re.compile(r"@(\d+)")
# Questions to the model of an agent and calls of its tools are what the agent itself does.
_TURNS = re.compile(r"\.(?:model|tool|tool_list)@\d+\.\d+")


class UnknownAttempt(NotFound):
    code = "attempt.unknown"


def event_lines(reader: RunReader, run_id: int) -> Iterator[bytes]:
    """The events of a run as JSON lines, as they are stored."""
    return (encode(entry) for entry in reader.events(run_id))


def plain_events(reader: RunReader, run_id: int) -> Iterator[dict[str, Any]]:
    """The events of a run as plain data: the same as their JSON says."""
    return map(msgspec.to_builtins, reader.events(run_id))


def step_logs(
    reader: RunReader,
    run_id: int,
    step: str,
    *,
    item: int | None = None,
    attempt: int | None = None,
    part: Part = "own",
) -> list[AttemptLog]:
    """The logs of a step or of one item: of one attempt, or of the last.

    With `part`, the handlers or scripts that ran after that attempt. Without `item`, every item of a map step.
    """
    meant = find_attempts(reader, run_id, step, item=item, attempt=attempt, part=part)
    return [reader.attempt_log(run_id, *one) for one in meant]


def first_logs(reader: RunReader, run_id: int) -> tuple[list[AttemptLog], int]:
    """The logs that are asked for first, and how many more there are of that kind.

    Those of the last attempts that failed; if none has, that of the attempt that began last.
    """
    tried = list_attempts(reader.events(run_id), lambda _: True)
    # In the order of scheduling: the last one of each place remains. What no host ran has no log.
    last = {one.place: one for one in tried if one.host}
    failed = [one for one in last.values() if one.status in ("failed", "lost")]
    meant = failed or sorted(last.values(), key=lambda one: one.started_at or one.scheduled_at)[-1:]
    shown = [reader.attempt_log(run_id, one.place, one.attempt) for one in meant[:FIRST_LOGS_MAX]]
    return shown, len(meant) - len(shown)


def find_attempts(
    reader: RunReader,
    run_id: int,
    step: str,
    *,
    item: int | None = None,
    attempt: int | None = None,
    part: Part = "own",
) -> list[tuple[str, int]]:
    """The attempts that are meant, by place and number. `UnknownStep`, `UnknownAttempt`."""
    step = reader.find_place(run_id, step)
    place = step if item is None else item_key(step, item)
    below = [one for one in reader.attempts(run_id, step, item) if is_meant(place, one[0], part)]
    below = _without_conversations(_without_maps(below))
    meant = _last(below, place) if attempt is None else [one for one in below if _number(place, *one) == attempt]
    if not meant:
        refuse_without_attempt(reader, run_id, step, item=item, attempt=attempt, part=part)
    return meant


def refuse_without_attempt(
    reader: RunReader, run_id: int, step: str, *, item: int | None, attempt: int | None, part: Part
) -> NoReturn:
    """Raise `UnknownAttempt`; the hint names the attempts that there are."""
    place = step if item is None else item_key(step, item)
    hint = (
        _there_is(reader.attempts(run_id, step), place)
        or _ran_inline(reader, run_id, step)
        or _kept(reader, run_id, step)
        or f"its story: mulligan explain {run_id} {step_name(step)}"
    )
    raise UnknownAttempt(_nothing(run_id, place, attempt, part), hint=hint, step=step)


def is_meant(place: str, key: str, part: Part) -> bool:
    """Whether a place below another is its own command, its handler or its script, as `part` says."""
    rest = _TURNS.sub("", key.removeprefix(place))
    return "@" not in rest if part == "own" else _MARKS[part] in rest


def _without_maps(attempts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Without the map step itself: only its items run commands."""
    maps = {step_name(key) for key, _ in attempts if "[" in key}
    return [one for one in attempts if one[0] not in maps]


def _without_conversations(attempts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Without the agents that have tools or a session: only their questions and calls write logs."""
    agents = {key[: found.start()] for key, _ in attempts if (found := _TURNS.search(key))}
    return [one for one in attempts if one[0] not in agents]


def _number(place: str, key: str, attempt: int) -> int:
    """The attempt of the step or item that this one belongs to: for a handler, the attempt that failed."""
    cause = _CAUSE.search(key.removeprefix(place))
    return int(cause.group(1)) if cause else attempt


def _last(attempts: list[tuple[str, int]], place: str) -> list[tuple[str, int]]:
    """The last attempt of each place; of handlers and scripts only those after the last failure."""
    latest = max((_number(place, *one) for one in attempts if "@" in one[0].removeprefix(place)), default=None)
    last = {key: number for key, number in attempts if latest is None or _number(place, key, number) == latest}
    return list(last.items())


def _nothing(run_id: int, place: str, attempt: int | None, part: Part) -> str:
    what = {"own": "attempt", "handler": "handler", "script": "recovery script"}[part]
    number = "" if attempt is None else f" {attempt}" if part == "own" else f" after attempt {attempt}"
    return f"'{place}' of run {run_id} has had no {what}{number}"


def _there_is(every: list[tuple[str, int]], place: str) -> str:
    found = list(dict.fromkeys(f"{key} attempt {number}" for key, number in every if is_at_or_below(key, place)))
    shown = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
    return f"there is {shown}" if found else ""


def _ran_inline(reader: RunReader, run_id: int, step: str) -> str:
    """A hint about an inline step, which the process of its program runs."""
    call = reader.lazy_state(run_id).calls.get(step)
    if call is None or call.kind != "inline":
        return ""
    return f"it ran inline, so what it wrote is in the log of its program: mulligan logs {run_id} {call.program}"


def _kept(reader: RunReader, run_id: int, step: str) -> str:
    """A hint about a step whose result a fork kept."""
    first = next((entry.fact for entry in reader.events(run_id)), None)
    if not isinstance(first, RunStarted) or step not in {kept.step for kept in first.kept}:
        return ""
    return f"its result was kept from run {first.forked_from}: mulligan logs {first.forked_from} {step}"
