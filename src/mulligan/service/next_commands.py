"""What one would type next after looking at a run, for every face: the commands, and what each is for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

# What a run is suggested commands for: its status once it has ended, else how it was left.
INTERRUPTED = "interrupted"


class NextCommand(msgspec.Struct, frozen=True):
    """A command as it is typed, without `--home`, and what it does."""

    text: str
    why: str


def suggest_commands(
    run_id: int,
    standing: str,
    *,
    has_run_out: bool = False,
    short_maps: Iterable[str] = (),
    spent_budgets: Sequence[str] = (),
) -> list[NextCommand]:
    """The commands for a run that `completed`, `failed`, was `cancelled` or `interrupted`; none for any other.

    `has_run_out`: an unhandled failure was a want of memory or time. `short_maps`: steps that completed without some of
    their items, which `retry` leaves alone. `spent_budgets`: limits to raise before a retry can do better.
    """
    found = [NextCommand(f"mulligan {text.format(run_id)}", why) for text, why in _NEXT.get(standing, ())]
    if standing == "failed" and has_run_out:
        found.insert(1, NextCommand(f"mulligan retry {run_id} --adjust", _ADJUST))
    if standing == "failed" and spent_budgets:
        raised = " ".join(f"--budget {limit}=N" for limit in spent_budgets)
        found[0] = NextCommand(f"mulligan retry {run_id} {raised}", "go on with a larger budget")
    if standing == "completed":
        found += [NextCommand(f"mulligan items {run_id} {step} --retry", _ITEMS) for step in short_maps]
    return found


_NEXT = {
    "failed": (("retry {}", "run again what failed"), ("explain {}", "the whole story")),
    "cancelled": (("retry {}", "take it up again"),),
    INTERRUPTED: (("resume {}", "go on where it stopped"),),
}
_ADJUST = "the same, with more memory or time where it ran out"
_ITEMS = "run the failed items again, alone"


def answers_to(run_id: int, kind: str, place: str, steps: Sequence[str] = ()) -> list[str]:
    """The commands with which a person answers what a run waits for; none where no person is asked.

    `steps`: of a wait, the steps that it names. A pause is lifted from a whole step.
    """
    name = steps[0] if kind == "step_pause" and steps else place
    return [f"mulligan {text.format(run=run_id, place=name)}" for text in _ANSWERS.get(kind, ())]


def answer_to(run_id: int, kind: str, name: str = "") -> str:
    """The one command that lets it go on, also for a breaker of that name; "" where no command does."""
    if kind == "breaker":
        return f"mulligan breakers --reset {name}"
    return next(reversed(answers_to(run_id, kind, name)), "")


_ANSWERS = {
    "triage": ("logs {run} {place}", "classify {run} {place} retry --reason 'why'"),
    "approval": ("approve {run} {place} --reason 'why'",),
    "pause": ("resume {run}",),
    "step_pause": ("resume {run} {place}",),
}
