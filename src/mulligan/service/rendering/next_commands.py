"""The commands that a face suggests after showing a run, and what each is for."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import msgspec

# Used in place of a run's status if its driver was interrupted, or if it goes on and is not shown any more.
INTERRUPTED, DETACHED = "interrupted", "detached"


class NextCommand(msgspec.Struct, frozen=True):
    """A command as it is typed, without `--home`, and what it does."""

    text: str
    why: str


def suggest_commands(
    run_id: int,
    status: str,
    *,
    has_run_out: bool = False,
    short_maps: Iterable[str] = (),
    spent_budgets: Sequence[str] = (),
    needs_force: bool = False,
) -> list[NextCommand]:
    """The commands for a run that completed, failed, was cancelled or interrupted, or is not shown any more.

    `has_run_out`: an unhandled step ran out of memory or time. `short_maps`: steps that completed without some of their
    items, which `retry` does not touch. `spent_budgets`: limits to raise before a retry can succeed.
    `needs_force`: what could not be undone would run again, so that a retry is refused without `--force`.
    """
    found = [NextCommand(f"mulligan {text.format(run_id)}", why) for text, why in _NEXT.get(status, ())]
    if status == "failed" and has_run_out:
        found.insert(1, NextCommand(f"mulligan retry {run_id} --adjust", _ADJUST))
    if status == "failed" and spent_budgets:
        raised = " ".join(f"--budget {limit}=N" for limit in spent_budgets)
        found[0] = NextCommand(f"mulligan retry {run_id} {raised}", "continue with a larger budget")
    if needs_force:
        again = [one for one in found if one.text.startswith("mulligan retry")]
        why = [_FORCE, *(one.why for one in again[1:])]
        found[: len(again)] = [NextCommand(f"{one.text} --force", it) for one, it in zip(again, why, strict=True)]
    if status == "completed":
        found += [NextCommand(f"mulligan items {run_id} {step} --retry", _ITEMS) for step in short_maps]
    return found


_NEXT = {
    "failed": (("retry {}", "run the failed steps again"), ("explain {}", "the full story")),
    "cancelled": (("retry {}", "continue the run"),),
    INTERRUPTED: (("resume {}", "continue where it stopped"),),
    DETACHED: (
        ("show {}", "its status"),
        ("logs {} -f", "what its steps write"),
        ("wait {}", "wait for its end"),
        ("cancel {}", "stop it"),
    ),
}
_ADJUST = "the same, with more memory or time for steps that ran out"
_FORCE = "check first what could not be undone: it runs again"
_ITEMS = "run only the failed items again"


def commands_for_wait(run_id: int, kind: str, place: str, steps: Sequence[str] = ()) -> list[str]:
    """The commands with which a person responds to a wait; none if it is not for a person or an event.

    `place`: its key or its name, or the name of the event. `steps`: the steps that the wait names. A pause is always
    that of a whole step.
    """
    name = shlex.quote(steps[0] if kind == "step_pause" and steps else place)
    return [f"mulligan {text.format(run=run_id, place=name)}" for text in _COMMANDS.get(kind, ())]


def command_for_request(run_id: int, kind: str, name: str = "") -> str:
    """The command that lets the run continue, also for a breaker of that name; "" if there is none."""
    if kind == "breaker":
        return f"mulligan breakers --reset {shlex.quote(name)}"
    return next(reversed(commands_for_wait(run_id, kind, name)), "")


_COMMANDS = {
    "triage": ("logs {run} {place}", "classify {run} {place} retry --reason 'why'"),
    "approval": ("approve {run} {place} --reason 'why'",),
    "pause": ("resume {run}",),
    "step_pause": ("resume {run} {place}",),
    "event": ("send {run} {place}",),
}
