"""The summary at the end of a run: its status, its failures and how they were handled, and the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from mulligan.history.route_outcomes import FailureOutcome
from mulligan.history.views import Wait
from mulligan.service.driving.outcome import MatrixFailures, Outcome
from mulligan.service.rendering.console.display import PLACE_CHARS_MAX
from mulligan.service.rendering.console.printer import Printer
from mulligan.service.rendering.console.terminal_text import kinds_text, length
from mulligan.service.rendering.formatting import group_title, pluralize, single_line
from mulligan.service.rendering.next_commands import commands_for_wait, suggest_commands
from mulligan.service.runs.views.failure_summary import FailureGroup, FailureLine, group_failures

# The most failures, and the most waits, that are listed.
LISTED_MAX = 20
# How many members of a group are named.
NAMES_MAX = 8


def show_outcome(printer: Printer, outcome: Outcome, home: str | None, *, is_kept: bool = True) -> None:
    """Print the summary in a few lines, whatever the size of the run; with the next commands, if the run is kept."""
    where = f" --home {shlex.quote(home)}" if home else ""
    lines = ["", _headline(printer, outcome)]
    if outcome.is_cut and is_kept:
        note = f"  not all lines are shown; for the full story: mulligan explain {outcome.run_id}{where}"
        lines.append(printer.tinted(note, "dim"))
    lines += [printer.tinted(f"  agents: {outcome.spent}", "dim")] if outcome.spent else []
    lines += _failures(printer, outcome, where, is_kept=is_kept)
    lines += _waits(printer, outcome, where, is_kept=is_kept)
    lines += _next(printer, outcome, where) if is_kept else []
    printer.say("\n".join(lines))


def _headline(printer: Printer, outcome: Outcome) -> str:
    took, run = _took(outcome), f"run {outcome.run_id}"
    if outcome.ending == "waiting":
        what = "a person" if any(wait.is_for_a_person for _, wait in outcome.waits) or not outcome.waits else "an event"
        return printer.tinted(f"{printer.mark('wait')} {run} waits for {what}", "wait")
    if outcome.ending == "detached":
        return printer.tinted(f"{printer.mark('wait')} {run} continues without this terminal", "wait")
    if outcome.ending == "interrupted":
        return printer.tinted(f"{printer.mark('wait')} {run} was interrupted after {took}; it can be resumed", "wait")
    tone = "good" if outcome.status == "completed" else "bad"
    words = "was cancelled" if outcome.status == "cancelled" else outcome.status
    degraded = f" ({outcome.degraded})" if outcome.degraded else ""
    reason = f": {outcome.reason}" if outcome.reason else ""
    headline = printer.tinted(f"{printer.mark(tone)} {run} {words}{degraded} in {took}{reason}", tone)
    return headline + printer.tinted(f" ({_counts(outcome)})", "dim")


def _took(outcome: Outcome) -> str:
    """How long the whole run took, and how long this process drove it, if it had started earlier."""
    whole, stretch = length(outcome.seconds), outcome.stretch_seconds
    return whole if stretch is None else f"{whole} ({length(stretch)} of it now)"


def _counts(outcome: Outcome) -> str:
    counts = outcome.counts
    shown = (f"{counts[status]:,} {word}" for status, word in _COUNTED.items() if counts.get(status))
    up_to_date = [f"{outcome.up_to_date:,} up to date"] if outcome.up_to_date else []
    return ", ".join([pluralize(sum(counts.values()), "step"), *up_to_date, *shown])


_COUNTED = {"failed": "failed", "skipped": "skipped", "cancelled": "cancelled"}


# -- failures --------------------------------------------------------------------------------------------------------


def _failures(printer: Printer, outcome: Outcome, where: str, *, is_kept: bool) -> Iterator[str]:
    # A wait for a decision shows its failure.
    waiting = {wait.place for run_id, wait in outcome.waits if run_id == outcome.run_id}
    together = {step for matrix in outcome.matrices for step in matrix.failed}
    elsewhere = waiting | together
    failures = [one for one in outcome.failures if one.run_id or one.place not in elsewhere]
    yield from (_matrix(printer, matrix, outcome.run_id, where, is_kept=is_kept) for matrix in outcome.matrices)
    groups = group_failures(failures)
    shown = groups[:LISTED_MAX]
    names = [_name(group) for group in shown]
    wide = min(PLACE_CHARS_MAX, max(map(len, names), default=0))
    for group, name in zip(shown, names, strict=True):
        yield _failure(
            printer,
            group,
            f"{name:<{wide}}",
            f"mulligan {_command_for_group(group, outcome.run_id)}{where}" if is_kept else "",
        )
    rest = [one for group in groups[LISTED_MAX:] for one in group.members]
    if rest and is_kept:
        yield printer.tinted(f"  {_more(rest, outcome.run_id)}{where}", "dim")


def _name(group: FailureGroup) -> str:
    """`build`; of several, how many: `22 steps`, `8 items of check`."""
    if len(group.members) == 1:
        return f"{group.first.above}{group.first.name}"
    noun = f"items of {group.first.step}" if group.first.is_item else "steps"
    return f"{len(group.members):,} {noun}"


def _command_for_group(group: FailureGroup, run_id: int) -> str:
    """The command that lists all of them, if they are failed items; otherwise the one for the first of them."""
    one = group.first
    are_failed_items = (
        len(group.members) > 1 and one.is_item and one.outcome in (FailureOutcome.UNHANDLED, FailureOutcome.ALLOWED)
    )
    return f"items {run_id} {one.step} --failed" if are_failed_items else _command_for(one, run_id)


def _matrix(printer: Printer, matrix: MatrixFailures, run_id: int, where: str, *, is_kept: bool) -> str:
    """The failed steps of a matrix in one line: how many, with which failures, and the command that lists them."""
    title = group_title(matrix.name, matrix.count)
    name = printer.tinted(title if printer.has_signs else title.replace("×", "x"), "bold")
    failed = printer.tinted(f"{len(matrix.failed):,} failed", "bad")
    typed = printer.tinted(f"  (mulligan show {run_id} {matrix.name}{where})", "dim") if is_kept else ""
    return f"  {printer.tinted(printer.mark('bad'), 'bad')} {name}  {failed}, {kinds_text(matrix.kinds)}{typed}"


def _more(rest: Sequence[FailureLine], run_id: int) -> str:
    steps = {one.step for one in rest}
    failed = "failed" if any(one.outcome != FailureOutcome.REPAIRED for one in rest) else "failed at first"
    if len(steps) == 1 and rest[0].is_item:
        return f"{pluralize(len(rest), 'more item')} {failed}: mulligan items {run_id} {steps.pop()}"
    return f"{len(rest):,} more {failed}: mulligan explain {run_id}"


def _failure(printer: Printer, group: FailureGroup, name: str, typed: str) -> str:
    one = group.first
    tone = _TONES[one.outcome]
    arrow = "→" if printer.has_signs else "->"
    line = (
        f"  {printer.tinted(printer.mark(tone), tone)} {printer.tinted(name, 'bold')}  {group.what} {arrow} "
        f"{printer.tinted(one.answer, tone)}{printer.tinted(f'  ({typed})', 'dim') if typed else ''}"
    )
    return f"{line}\n{printer.tinted(f'      {_names(group)}', 'dim')}" if len(group.members) > 1 else line


def _names(group: FailureGroup) -> str:
    """The first of them by name: `s0, s1, s2 and 19 more`."""
    names = [f"{one.above}{one.name}" for one in group.members]
    left = len(names) - NAMES_MAX
    return f"{', '.join(names[:NAMES_MAX])}{f' and {left:,} more' if left > 0 else ''}"


_TONES: dict[FailureOutcome, str] = {
    FailureOutcome.UNHANDLED: "bad",
    FailureOutcome.ALLOWED: "bad",
    FailureOutcome.IN_PROGRESS: "try",
    FailureOutcome.REPAIRED: "good",
}


def _command_for(one: FailureLine, run_id: int) -> str:
    """The command that shows what went wrong: for its log, its output, or its child run."""
    run_id = one.run_id or run_id
    if one.child_run_id is not None:
        return f"explain {one.child_run_id}"
    if one.spent_budget:
        # It did not start and wrote nothing.
        return f"explain {run_id} {one.step}"
    if one.has_refused_output and one.outcome != FailureOutcome.REPAIRED:
        return f"show {run_id} --output {one.place}"
    item = f" --item {shlex.quote(one.name.removeprefix(one.step)[1:-1])}" if one.is_item else ""
    return f"logs {run_id} {one.step}{item}"


# -- next steps ------------------------------------------------------------------------------------------------------


def _waits(printer: Printer, outcome: Outcome, where: str, *, is_kept: bool) -> Iterator[str]:
    for run_id, wait in outcome.waits[:LISTED_MAX]:
        run = "" if run_id == outcome.run_id else f"run {run_id}"
        name = ", ".join(filter(None, (run, wait.shown_place))) or "the run"
        text = f"{name} waits for {single_line(wait.text)}{_default(wait)}"
        yield printer.tinted(f"  {printer.mark('wait')} {text}", "wait")
        typed = commands_for_wait(run_id, wait.kind, wait.event or wait.shown_place, wait.steps) if is_kept else []
        yield from (f"      {one}{where}" for one in typed)


def _default(wait: Wait) -> str:
    if wait.due is None or not wait.is_for_a_person:
        return ""
    return f"; the default applies on {wait.due.astimezone():%Y-%m-%d at %H:%M}"


def _next(printer: Printer, outcome: Outcome, where: str) -> Iterator[str]:
    """What one would type now."""
    found = suggest_commands(
        outcome.run_id,
        outcome.ending if outcome.ending != "ended" else outcome.status,
        has_run_out=any(one.is_unhandled and one.has_run_out for one in outcome.failures),
        short_maps=_short_of_items(outcome),
        spent_budgets=_spent_budgets(outcome),
        needs_force=outcome.needs_force,
    )
    typed = {f"{one.text}{where}": one.why for one in found}
    wide = max(map(len, typed), default=0)
    yield from (f"  {words:<{wide}}  {printer.tinted(f'# {why}', 'dim')}" for words, why in typed.items())


def _spent_budgets(outcome: Outcome) -> list[str]:
    """The limits to raise before a retry can succeed."""
    return list({one.spent_budget: None for one in outcome.failures if one.is_unhandled and one.spent_budget})


def _short_of_items(outcome: Outcome) -> list[str]:
    """The maps that completed without some of their items, which `retry` does not touch."""
    return list({one.step: None for one in outcome.failures if one.is_item and one.outcome == FailureOutcome.ALLOWED})
