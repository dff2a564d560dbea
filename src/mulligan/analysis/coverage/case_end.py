"""How a case ended: read from the log of a play and the state of the run at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mulligan.analysis.coverage.failure_kinds import Kind, failing_command
from mulligan.analysis.coverage.injection import Path, path_of
from mulligan.analysis.coverage.results import Verdict
from mulligan.analysis.playing.player import Player
from mulligan.core.model import events as e
from mulligan.core.model.place_keys import item_key, step_name
from mulligan.core.model.workflow import Step
from mulligan.core.state.state import Place, State


class CaseEnd(msgspec.Struct, frozen=True):
    """How a case ended. Seconds from the start of the run; `extra_seconds`: if attempts take as long as they may."""

    verdict: Verdict
    run_status: str
    rung: str
    attempts: int
    seconds: float
    extra_seconds: float = 0.0
    # In a program: where it caught the failure, or makes a call without a fake; and the label of that call.
    at: str = ""
    needs: str = ""


def judge(player: Player, path: Path, step: Step, kind: Kind) -> CaseEnd:
    """How a case ended that was played to its end."""
    ending = player.ending()
    runs = [run for run in player.runs if path_of(run) == path]
    entries = [entry for run in runs for entry in run.entries]
    place = runs[-1].state.places.get(step.name) if runs else None
    if kind.of in ("cancel", "undo"):
        verdict = _stop_verdict(ending.status, entries, step.name, kind)
    elif ending.status == "waiting":
        verdict = "parked"
    elif ending.status == "completed":
        verdict = good_verdict(runs[-1].state, place)
    else:
        verdict = "stops" if player.state.run.stop is not None else "fails"
    return CaseEnd(
        verdict=verdict,
        run_status=ending.status,
        rung=rung_of(entries, step.name, kind, verdict),
        attempts=attempts_of(entries, step),
        seconds=ending.seconds,
        extra_seconds=extra_seconds(entries, step),
    )


def recovered_end(entries: Sequence[e.Entry], step: Step, kind: Kind, seconds: float) -> CaseEnd:
    """The end of a case whose step has completed, and whose rest is that of a run in which nothing fails."""
    return CaseEnd(
        verdict="recovered",
        run_status="completed",
        rung=rung_of(entries, step.name, kind, "recovered"),
        attempts=attempts_of(entries, step),
        seconds=seconds,
        extra_seconds=extra_seconds(entries, step),
    )


def _stop_verdict(status: str, entries: Iterable[e.Entry], step: str, kind: Kind) -> Verdict:
    """A cancelled run ends as somebody asked. Nothing deals with an undo that failed."""
    if status == "waiting":
        return "parked"
    if kind.of == "undo":
        is_undone = any(isinstance(one.fact, e.UndoCompleted) and one.fact.step == step for one in entries)
        return "recovered" if is_undone else "fails"
    is_undone = not any(isinstance(one.fact, e.UndoFailed) for one in entries)
    return "allowed" if status == "cancelled" and is_undone else "fails"


def good_verdict(state: State, place: Place | None) -> Verdict:
    """The verdict of a case in which the run completed: by how the step ended."""
    if place is None:
        return "handled"
    if place.status == "completed":
        failed = any(item is not None and item.status == "failed" for item in state.items_of(place))
        return "allowed" if failed else "recovered"
    record = None if place.failure_index is None else state.failures[place.failure_index]
    return "allowed" if record is not None and record.is_allowed and not record.target else "handled"


def rung_of(entries: Iterable[e.Entry], step: str, kind: Kind, verdict: Verdict) -> str:
    """What dealt with the failure, in a word."""
    if kind.of == "cancel":
        return kind.of
    if verdict in ("fails", "stops"):
        return "nothing"
    if verdict == "parked":
        return "triage"
    seen = [rung for entry in entries if (rung := _rung(entry.fact, step, kind))]
    if verdict == "allowed":
        return "allowed" if "map" not in seen else "map"
    if verdict == "handled":
        return next((rung for rung in reversed(seen) if rung in ("remediation", "route")), "end")
    return next((rung for rung in reversed(seen) if rung not in ("route", "map")), "nothing")


def _rung(fact: Any, step: str, kind: Kind) -> str:
    """The rung that a fact about this step shows; "" for most."""
    found = _RUNGS.get(type(fact))
    if found is None:
        return ""
    name = step_name(fact.place) if hasattr(fact, "place") else fact.step
    return found(fact) if name == step else ""


# What led to another attempt.
_CAUSES = {"retry": "retry", "lost": "rerun", "rerun": "handler", "classified": "triage"}
_RUNGS: dict[type[e.Fact], Any] = {
    e.AttemptScheduled: lambda fact: _CAUSES.get(fact.cause, ""),
    e.RetryScheduled: lambda fact: "script" if fact.has_script else "",
    e.HandlerSucceeded: lambda fact: "" if fact.strategy == "cleanup" else "handler",
    e.StepPutBack: lambda fact: "remediation" if fact.cause == "rerun" else "",
    e.StepReplaced: lambda fact: "remediation",
    e.StepFailed: lambda fact: "route" if fact.route.is_sent else "",
    e.ItemFailed: lambda fact: "map",
    e.ToolAnswered: lambda fact: "agent" if fact.error else "",
    e.WarningRecorded: lambda fact: "warning",
}


def attempts_of(entries: Iterable[e.Entry], step: Step) -> int:
    """How many attempts of the step were scheduled; for a map, of the item that fails."""
    names = action_keys(step)
    return sum(isinstance(entry.fact, e.AttemptScheduled) and entry.fact.place in names for entry in entries)


def action_keys(step: Step) -> frozenset[str]:
    """The place that fails when the step fails."""
    command = failing_command(step)
    if step.map is None or command not in step.do:
        return frozenset({step.name})
    return frozenset({f"{item_key(step.name, 0)}.{step.do.index(command)}"})


# -- the worst case --------------------------------------------------------------------------------------------------


def extra_seconds(entries: Sequence[e.Entry], step: Step, begun_at: datetime | None = None) -> float:
    """How much longer it takes if each failed attempt of the step, and its handler, take as long as they may.

    `begun_at`: when the first attempt began, if the entries do not say that.
    """
    keys, command = action_keys(step), failing_command(step)
    handler = command.on_failure or step.on_failure
    begun: dict[str, datetime] = {} if begun_at is None else {"": begun_at}
    limit, total = command.timeout, 0.0
    for entry in entries:
        fact = entry.fact
        if isinstance(fact, e.AttemptScheduled) and fact.place in keys:
            more = fact.adjusted.timeout if fact.adjusted is not None else None
            limit, begun[""] = more or command.timeout, entry.at
        elif isinstance(fact, e.AttemptFailed | e.AttemptLost) and fact.place in keys and "" in begun and limit:
            total += max(0.0, limit - (entry.at - begun.pop("")).total_seconds())
        elif isinstance(fact, e.HandlerStarted) and step_name(fact.place) == step.name:
            begun["handler"] = entry.at
        elif isinstance(fact, e.HandlerSucceeded | e.HandlerFailed) and "handler" in begun:
            took = (entry.at - begun.pop("handler")).total_seconds()
            total += max(0.0, handler.timeout - took) if handler is not None and handler.timeout else 0.0
    return total
