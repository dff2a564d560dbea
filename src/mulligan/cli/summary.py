"""The last word on a run: how it ended, what broke and what was done about it, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

from mulligan.cli.console_style import Paper
from mulligan.cli.display import PLACE_CHARS_MAX
from mulligan.cli.groups import kinds_text
from mulligan.cli.tables import length
from mulligan.service import Answered, Fate, Group, MatrixFailures, Outcome, answers_to, grouped, suggest_commands
from mulligan.service.formatting import group_title, pluralize, single_line

# Of very many, as many are told.
TOLD_MAX = 20
# Of a group so many are named.
NAMES_MAX = 8


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
    took, run = _took(outcome), f"run {outcome.run_id}"
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


def _took(outcome: Outcome) -> str:
    """How long the whole run took, with what of it was just now, where it had begun before."""
    whole, stretch = length(outcome.seconds), outcome.stretch_seconds
    return whole if stretch is None else f"{whole}, {length(stretch)} of it just now"


def _counts(outcome: Outcome) -> str:
    counts = outcome.counts
    shown = (f"{counts[status]:,} {word}" for status, word in _COUNTED.items() if counts.get(status))
    up_to_date = [f"{outcome.up_to_date:,} up to date"] if outcome.up_to_date else []
    return ", ".join([pluralize(sum(counts.values()), "step"), *up_to_date, *shown])


_COUNTED = {"failed": "failed", "skipped": "skipped", "cancelled": "cancelled"}


# -- what broke ------------------------------------------------------------------------------------------------------


def _failures(paper: Paper, outcome: Outcome, where: str, *, is_kept: bool) -> Iterator[str]:
    # Whoever is asked to decide reads of the failure there.
    asked = {wait.place for run_id, wait in outcome.waits if run_id == outcome.run_id}
    together = {step for matrix in outcome.matrices for step in matrix.failed}
    answers = [one for one in outcome.answers if one.place not in asked and one.place not in together]
    yield from (_matrix(paper, matrix, outcome.run_id, where, is_kept=is_kept) for matrix in outcome.matrices)
    groups = grouped(answers)
    shown = groups[:TOLD_MAX]
    names = [_name(group) for group in shown]
    wide = min(PLACE_CHARS_MAX, max(map(len, names), default=0))
    for group, name in zip(shown, names, strict=True):
        yield _failure(
            paper,
            group,
            f"{name:<{wide}}",
            f"mulligan {_group_to_read(group, outcome.run_id)}{where}" if is_kept else "",
        )
    rest = [one for group in groups[TOLD_MAX:] for one in group.members]
    if rest and is_kept:
        yield paper.tinted(f"  {_more(rest, outcome.run_id)}{where}", "dim")


def _name(group: Group) -> str:
    """`build`; of several, how many: `22 steps`, `8 items of check`."""
    if len(group.members) == 1:
        return group.first.place
    noun = f"items of {group.first.step}" if group.first.is_item else "steps"
    return f"{len(group.members):,} {noun}"


def _group_to_read(group: Group, run_id: int) -> str:
    """Where all of them are listed, if they are items that failed; else what the first of them wrote."""
    one = group.first
    are_failed_items = len(group.members) > 1 and one.is_item and one.fate in ("open", "left")
    return f"items {run_id} {one.step} --failed" if are_failed_items else _to_read(one, run_id)


def _matrix(paper: Paper, matrix: MatrixFailures, run_id: int, where: str, *, is_kept: bool) -> str:
    """The failed steps of a matrix in one line: how many, in which ways, and where to see each."""
    title = group_title(matrix.name, matrix.count)
    name = paper.tinted(title if paper.has_signs else title.replace("×", "x"), "bold")
    failed = paper.tinted(f"{len(matrix.failed):,} failed", "bad")
    typed = paper.tinted(f"  (mulligan show {run_id} {matrix.name}{where})", "dim") if is_kept else ""
    return f"  {paper.tinted(paper.mark('bad'), 'bad')} {name}  {failed}, {kinds_text(matrix.kinds)}{typed}"


def _more(rest: Sequence[Answered], run_id: int) -> str:
    steps = {one.step for one in rest}
    failed = "failed" if any(one.fate != "mended" for one in rest) else "had failed"
    if len(steps) == 1 and rest[0].is_item:
        return f"{pluralize(len(rest), 'more item')} {failed}: mulligan items {run_id} {steps.pop()}"
    return f"{len(rest):,} more {failed}: mulligan explain {run_id}"


def _failure(paper: Paper, group: Group, name: str, typed: str) -> str:
    one = group.first
    tone = _TONES[one.fate]
    arrow = "→" if paper.has_signs else "->"
    said = (
        f"  {paper.tinted(paper.mark(tone), tone)} {paper.tinted(name, 'bold')}  {group.what} {arrow} "
        f"{paper.tinted(one.answer, tone)}{paper.tinted(f'  ({typed})', 'dim') if typed else ''}"
    )
    return f"{said}\n{paper.tinted(f'      {_names(group)}', 'dim')}" if len(group.members) > 1 else said


def _names(group: Group) -> str:
    """The first of them by name: `s0, s1, s2 and 19 more`."""
    names = [one.place for one in group.members]
    left = len(names) - NAMES_MAX
    return f"{', '.join(names[:NAMES_MAX])}{f' and {left:,} more' if left > 0 else ''}"


_TONES: dict[Fate, str] = {"open": "bad", "left": "bad", "under_way": "try", "mended": "good"}


def _to_read(one: Answered, run_id: int) -> str:
    """Where it is told what went wrong: in its own log or output, or by the run that it called."""
    if one.child_run_id is not None:
        return f"explain {one.child_run_id}"
    if one.spent_budget:
        # It was kept from starting, and wrote nothing.
        return f"explain {run_id} {one.step}"
    if one.has_refused_output and one.fate != "mended":
        return f"show {run_id} --output {one.place}"
    item = f" --item {one.place.removeprefix(one.step).strip('[]')}" if one.is_item else ""
    return f"logs {run_id} {one.step}{item}"


# -- what to do ------------------------------------------------------------------------------------------------------


def _waits(paper: Paper, outcome: Outcome, where: str, *, is_kept: bool) -> Iterator[str]:
    for run_id, wait in outcome.waits[:TOLD_MAX]:
        whose = "" if run_id == outcome.run_id else f"run {run_id}, "
        place = f"{whose}{wait.place}: " if wait.place else whose
        yield paper.tinted(f"  {paper.mark('wait')} {place}{single_line(wait.text)}{_default(wait.due)}", "wait")
        typed = answers_to(run_id, wait.kind, wait.place, wait.steps) if is_kept else []
        yield from (f"      {one}{where}" for one in typed)


def _default(due: datetime | None) -> str:
    return f", or its default on {due.astimezone():%Y-%m-%d at %H:%M}" if due is not None else ""


def _next(paper: Paper, outcome: Outcome, where: str) -> Iterator[str]:
    """What one would type now."""
    found = suggest_commands(
        outcome.run_id,
        outcome.ending if outcome.ending != "ended" else outcome.status,
        has_run_out=any(one.is_open and one.has_run_out for one in outcome.answers),
        short_maps=_short_of_items(outcome),
        spent_budgets=_spent_budgets(outcome),
    )
    typed = {f"{one.text}{where}": one.why for one in found}
    wide = max(map(len, typed), default=0)
    yield from (f"  {words:<{wide}}  {paper.tinted(f'# {why}', 'dim')}" for words, why in typed.items())


def _spent_budgets(outcome: Outcome) -> list[str]:
    """The limits that have to be raised before a retry can do better."""
    return list({one.spent_budget: None for one in outcome.answers if one.is_open and one.spent_budget})


def _short_of_items(outcome: Outcome) -> list[str]:
    """The maps that completed without some of their items: `retry` has nothing to do there."""
    return list({one.step: None for one in outcome.answers if one.is_item and one.fate == "left"})
