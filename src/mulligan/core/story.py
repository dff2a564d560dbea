"""A run told in sentences, from its events alone: one line per fact that matters to a person, none for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from . import events as e
from .failure import Failure

Tone = Literal["plain", "good", "bad", "try", "wait"]


class Line(msgspec.Struct, frozen=True):
    """One sentence about one place. The tone is for whoever colours it."""

    at: datetime
    place: str
    text: str
    tone: Tone = "plain"


def tell(entry: e.Entry) -> Line | None:
    """The sentence for an entry, if it has one."""
    rule = _SENTENCES.get(type(entry.fact))
    if rule is None:
        return None
    said = rule(entry.fact, entry.at)
    if said is None:
        return None
    place, text, tone = said
    return Line(entry.at, place, text, tone)


def story(entries: Iterator[e.Entry]) -> Iterator[Line]:
    return (line for line in map(tell, entries) if line is not None)


_Said = tuple[str, str, Tone] | None


def what(failure: Failure) -> str:
    """A failure in a few words: its code, its exit code where that says more, and one line of its message.

    What a command wrote says most in its last line, an exception in its first.
    """
    detail = f" {failure.exit_code}" if failure.code == "EXIT_NONZERO" and failure.exit_code is not None else ""
    lines = [line.strip() for line in failure.message.splitlines() if line.strip()] or [""]
    line = lines[0] if failure.code == "EXCEPTION" else lines[-1]
    is_news = line and line not in (f"exit code {failure.exit_code}", failure.code)
    shown = line if len(line) <= 100 else line[:97] + "…"
    return f"{failure.code}{detail}: {shown}" if is_news else f"{failure.code}{detail}"


def _until(due: datetime, at: datetime) -> str:
    """When that is: `at once`, `in 2.0s`, `in 90s`, `in 5m30s`, `in 8h00m`."""
    left = (due - at).total_seconds()
    if left <= 0:
        return "at once"
    if left < 100:
        return f"in {left:.1f}s" if left < 10 else f"in {left:.0f}s"
    minutes, seconds = divmod(round(left), 60)
    return f"in {minutes}m{seconds:02}s" if minutes < 60 else f"in {minutes // 60}h{minutes % 60:02}m"


def _retry(fact: e.RetryScheduled, at: datetime) -> _Said:
    script = ", after its recovery script" if fact.has_script else ""
    return fact.place, f"rule {fact.rule + 1} grants retry {fact.number}, {_until(fact.due, at)}{script}", "try"


def _completed(fact: e.StepCompleted, at: datetime) -> _Said:
    if fact.step == "end":
        return None
    how = {"rerun": ", on the run after its handler", "": ""}.get(
        fact.recovered_by, f", by its {fact.recovered_by} handler"
    )
    no_route = "; none of its edges holds" if fact.no_route else ""
    return fact.step, f"{'recovered' if fact.recovered_by else 'completed'}{how}{no_route}", "good"


def _succeeded(fact: e.AttemptSucceeded, at: datetime) -> _Said:
    """Of itself no news; but who approved, and what a step warned of, is."""
    if isinstance(fact.output, dict) and fact.output.keys() == {"approved", "by", "reason"}:
        return fact.place, f"approved by {fact.output['by']}: {fact.output['reason']}", "good"
    return (fact.place, f"warning, {what(fact.warnings[-1])}", "wait") if fact.warnings else None


def _failed(fact: e.StepFailed, at: datetime) -> _Said:
    if fact.route.status == "selected" and fact.route.to != "end":
        return fact.step, f"failed, {what(fact.failure)}; '{fact.route.to}' takes over", "bad"
    allowed = ", which it may" if fact.is_allowed else ""
    return fact.step, f"failed{allowed}, {what(fact.failure)}", "bad"


def _ended(fact: Any, at: datetime) -> _Said:
    verb = {e.RunCompleted: "completed", e.RunFailed: "failed", e.RunCancelled: "cancelled"}[type(fact)]
    degraded = ", not without help" if fact.degraded else ""
    open_ = f", {_count(fact.failed_steps_count, 'step')} failed with nobody to handle it" if verb == "failed" else ""
    because = f": {fact.reason}" if fact.reason else open_ if fact.failed_steps_count else ""
    was = "was " if verb == "cancelled" else ""
    return "end", f"the run {was}{verb}{degraded}{because}", "good" if verb == "completed" else "bad"


def _passed(fact: e.RungPassed, at: datetime) -> _Said:
    words = {
        "no_rule": "no rule matches",
        "retries_exhausted": "its retries are used up",
        "attempts_exhausted": "its attempts are used up",
        "deadline_passed": "its deadline leaves no time for a retry",
        "reruns_exhausted": "its reruns are used up",
        "no_edge_fits": "no failure edge fits",
        "handler_failure_fatal": "its handler failed, and that is fatal",
    }
    return (fact.place, words[fact.reason], "plain") if fact.reason in words and fact.reason != "no_rule" else None


def _classified(fact: e.StepClassified, at: datetime) -> _Said:
    return fact.step, f"{fact.by or 'someone'} says {fact.verdict}: {fact.reason}", "try"


def _parked(fact: e.StepParked, at: datetime) -> _Said:
    until = "" if fact.due is None else f"; its default applies {_until(fact.due, at)}"
    return fact.step, f"parked for a person to decide{until}", "wait"


_SENTENCES: dict[type[e.Fact], Callable[[Any, datetime], _Said]] = {
    e.RunPaused: lambda f, at: ("", f"paused{_by(f)}", "wait"),
    e.RunResumed: lambda f, at: ("", f"resumed{_by(f)}", "plain"),
    e.RunStopping: lambda f, at: ("", f"stopping: {f.cause.replace('_', ' ')}{_by(f)}", "bad"),
    e.RunReopened: lambda f, at: ("", f"round {f.round}{_by(f)}", "try"),
    e.RunStarted: lambda f, at: ("", f"forked from run {f.forked_from}{_by(f)}", "plain") if f.forked_from else None,
    e.RunCompleted: _ended,
    e.RunFailed: _ended,
    e.RunCancelled: _ended,
    e.StepEntered: lambda f, at: (f.step, f"visit {f.visit}", "plain") if f.visit > 1 and f.step != "end" else None,
    e.StepSkipped: lambda f, at: (f.step, f"skipped: {f.reason.replace('_', ' ')}", "plain"),
    e.StepCompleted: _completed,
    e.StepFailed: _failed,
    e.StepCancelled: lambda f, at: (f.step, "cancelled", "bad"),
    e.StepParked: _parked,
    e.StepClassified: _classified,
    e.StepPutBack: lambda f, at: (f.step, f"goes again: '{f.by}' has completed", "try") if f.cause == "rerun" else None,
    e.StepStoodIn: lambda f, at: (f.step, f"'{f.by}' stands in for it", "good"),
    e.StepSettled: lambda f, at: (
        (f.step, f"nothing could stand in for it, {what(f.failure)}", "bad") if f.failure else None
    ),
    e.LoopFired: lambda f, at: (f.step, f"back to '{f.to}'", "try"),
    e.AttemptFailed: lambda f, at: (f.place, f"attempt {f.attempt} failed, {what(f.failure)}", "bad"),
    e.AttemptSucceeded: _succeeded,
    e.AttemptInterrupted: lambda f, at: (f.place, f"attempt {f.attempt} interrupted: it goes again", "try"),
    e.AttemptLost: lambda f, at: (f.place, f"attempt {f.attempt} lost: its worker is gone", "bad"),
    e.ResultRejected: lambda f, at: (f.place, f"its result is not accepted, {what(f.failure)}", "bad"),
    e.RungPassed: _passed,
    e.RetryScheduled: _retry,
    e.HandlerStarted: lambda f, at: (f.place, f"its {f.strategy} handler runs", "try"),
    e.HandlerFailed: lambda f, at: (f.place, f"its handler failed too, {what(f.failure.cause[0])}", "bad"),
    e.MapExpanded: lambda f, at: (f.place, _count(len(f.items), "item"), "plain") if f.items is not None else None,
    e.ItemFailed: lambda f, at: (f.place, f"item failed, {what(f.failure)}", "bad"),
    e.UndoStarted: lambda f, at: (f.step, "is undone", "try"),
    e.UndoFailed: lambda f, at: (f.step, f"could not be undone, {what(f.failure)}", "bad"),
    e.WarningRecorded: lambda f, at: (f.place, f"warning, {what(f.failure)}", "wait"),
}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _by(fact: Any) -> str:
    reason = getattr(fact, "reason", "")
    return (f" by {fact.by}" if fact.by else "") + (f": {reason}" if reason else "")
