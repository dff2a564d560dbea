"""The last word on a run: how it ended, what broke and what was done about it, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from mulligan.cli.display import PLACE_CHARS_MAX
from mulligan.cli.paper import Paper
from mulligan.cli.tables import length
from mulligan.service.account import Answered, Fate
from mulligan.service.outcome import Outcome
from mulligan.service.words import counted, flat

# Of very many, as many are told.
TOLD_MAX = 20


def tell_outcome(paper: Paper, outcome: Outcome, home: str | None, *, is_kept: bool = True) -> None:
    """Say it, in a few lines whatever the size of the run; with what to type next, where the run is kept."""
    where = f" --home {shlex.quote(home)}" if home else ""
    lines = ["", _headline(paper, outcome)]
    if outcome.is_cut and is_kept:
        said = f"  there was more to tell than is shown: mulligan explain {outcome.run_id}{where}"
        lines.append(paper.tinted(said, "dim"))
    lines += [paper.tinted(f"  agents: {outcome.spent}", "dim")] if outcome.spent else []
    lines += _failures(paper, outcome, where, is_kept=is_kept)
    lines += _waits(paper, outcome, where, is_kept=is_kept)
    lines += _next(paper, outcome, where) if is_kept else []
    paper.say("\n".join(lines))


def _headline(paper: Paper, outcome: Outcome) -> str:
    took, run = length(outcome.seconds), f"run {outcome.run_id}"
    if outcome.ending == "waiting":
        return paper.tinted(f"{paper.mark('wait')} {run} waits for a person", "wait")
    if outcome.ending == "interrupted":
        return paper.tinted(f"{paper.mark('wait')} {run} was interrupted after {took}; nothing is lost", "wait")
    tone = "good" if outcome.status == "completed" else "bad"
    words = "was cancelled" if outcome.status == "cancelled" else outcome.status
    aided = ", not without help," if outcome.degraded and outcome.status == "completed" else ""
    reason = f": {outcome.reason}" if outcome.reason else ""
    said = paper.tinted(f"{paper.mark(tone)} {run} {words}{aided} in {took}{reason}", tone)
    return said + paper.tinted(f" ({_counts(outcome)})", "dim")


def _counts(outcome: Outcome) -> str:
    counts = outcome.counts
    shown = (f"{counts[status]:,} {word}" for status, word in _COUNTED.items() if counts.get(status))
    return ", ".join([counted(sum(counts.values()), "step"), *shown])


_COUNTED = {"failed": "failed", "skipped": "skipped", "cancelled": "cancelled"}


# -- what broke ------------------------------------------------------------------------------------------------------


def _failures(paper: Paper, outcome: Outcome, where: str, *, is_kept: bool) -> Iterator[str]:
    # Whoever is asked to decide reads of the failure there.
    asked = {wait.place for run_id, wait in outcome.waits if run_id == outcome.run_id}
    answers = [one for one in outcome.answers if one.place not in asked]
    shown = answers[:TOLD_MAX]
    wide = min(PLACE_CHARS_MAX, max((len(one.place) for one in shown), default=0))
    for one in shown:
        yield _failure(paper, one, wide, f"mulligan {_to_read(one, outcome.run_id)}{where}" if is_kept else "")
    if len(answers) > TOLD_MAX and is_kept:
        yield paper.tinted(f"  {_more(answers[TOLD_MAX:], outcome.run_id)}{where}", "dim")


def _more(rest: Sequence[Answered], run_id: int) -> str:
    steps = {one.step for one in rest}
    failed = "failed" if any(one.fate != "mended" for one in rest) else "had failed"
    if len(steps) == 1 and rest[0].is_item:
        return f"{counted(len(rest), 'more item')} {failed}: mulligan items {run_id} {steps.pop()}"
    return f"{len(rest):,} more {failed}: mulligan explain {run_id}"


def _failure(paper: Paper, one: Answered, wide: int, typed: str) -> str:
    tone = _TONES[one.fate]
    name = paper.tinted(f"{one.place:<{wide}}", "bold")
    arrow = "→" if paper.has_signs else "->"
    return (
        f"  {paper.tinted(paper.mark(tone), tone)} {name}  {one.what} {arrow} {paper.tinted(one.answer, tone)}"
        f"{paper.tinted(f'  ({typed})', 'dim') if typed else ''}"
    )


_TONES: dict[Fate, str] = {"open": "bad", "left": "bad", "under_way": "try", "mended": "good"}


def _to_read(one: Answered, run_id: int) -> str:
    """Where it is told what went wrong: in its own log, or by the run that it called."""
    if one.child_run_id is not None:
        return f"explain {one.child_run_id}"
    item = f" --item {one.place.removeprefix(one.step).strip('[]')}" if one.is_item else ""
    return f"logs {run_id} {one.step}{item}"


# -- what to do ------------------------------------------------------------------------------------------------------


def _waits(paper: Paper, outcome: Outcome, where: str, *, is_kept: bool) -> Iterator[str]:
    for run_id, wait in outcome.waits[:TOLD_MAX]:
        whose = "" if run_id == outcome.run_id else f"run {run_id}, "
        place = f"{whose}{wait.place}: " if wait.place else whose
        yield paper.tinted(f"  {paper.mark('wait')} {place}{flat(wait.text)}{_default(wait.due)}", "wait")
        for typed in _ANSWERS[wait.kind] if is_kept else ():
            yield f"      {typed.format(run=run_id, place=wait.place)}{where}"


def _default(due: datetime | None) -> str:
    return f", or its default on {due.astimezone():%Y-%m-%d at %H:%M}" if due is not None else ""


_ANSWERS = {
    "triage": ("mulligan logs {run} {place}", "mulligan classify {run} {place} retry --reason 'why'"),
    "approval": ("mulligan approve {run} {place} --reason 'why'",),
    "pause": ("mulligan resume {run}",),
}


def _next(paper: Paper, outcome: Outcome, where: str) -> Iterator[str]:
    """What one would type now."""
    key = outcome.ending if outcome.ending != "ended" else outcome.status
    next_: Mapping[str, Sequence[tuple[str, str]]]
    next_ = _MORE if key == "failed" and any(one.is_open and one.has_run_out for one in outcome.answers) else _NEXT
    if key == "failed" and (limits := _spent_budgets(outcome)):
        raised = " ".join(f"--budget {limit}=N" for limit in limits)
        next_ = {"failed": ((f"retry {{}} {raised}", "go on with a larger budget"), _EXPLAIN)}
    typed = {f"mulligan {verb.format(outcome.run_id)}{where}": why for verb, why in next_.get(key, ())}
    if key == "completed":
        typed |= {f"mulligan items {outcome.run_id} {step} --retry{where}": _ITEMS for step in _short_of_items(outcome)}
    wide = max(map(len, typed), default=0)
    yield from (f"  {words:<{wide}}  {paper.tinted(f'# {why}', 'dim')}" for words, why in typed.items())


def _spent_budgets(outcome: Outcome) -> list[str]:
    """The limits that have to be raised before a retry can do better."""
    return list({one.spent_budget: None for one in outcome.answers if one.is_open and one.spent_budget})


def _short_of_items(outcome: Outcome) -> list[str]:
    """The maps that completed without some of their items: `retry` has nothing to do there."""
    return list({one.step: None for one in outcome.answers if one.is_item and one.fate == "left"})


_ITEMS = "run the failed items again, alone"
_RETRY, _EXPLAIN = ("retry {}", "run again what failed"), ("explain {}", "the whole story")
_NEXT: dict[str, Sequence[tuple[str, str]]] = {
    "failed": (_RETRY, _EXPLAIN),
    "cancelled": (("retry {}", "take it up again"),),
    "interrupted": (("resume {}", "go on where it stopped"),),
}
# Where memory or time ran out.
_MORE = {"failed": (_RETRY, ("retry {} --adjust", "the same, with more memory or time where it ran out"), _EXPLAIN)}
