"""The command that answers what a run waits for."""

from __future__ import annotations

_ANSWERS = {
    "triage": "mulligan classify {run} {name} retry --reason 'why'",
    "approval": "mulligan approve {run} {name} --reason 'why'",
    "pause": "mulligan resume {run}",
    "step_pause": "mulligan resume {run} {name}",
    "breaker": "mulligan breakers --reset {name}",
}


def answer(kind: str, run_id: int, name: str = "", home: str = "") -> str:
    """What to type, for a kind of wait; "" where no person is asked. `home`: as `options.where` says it."""
    return f"{_ANSWERS[kind].format(run=run_id, name=name)}{home}" if kind in _ANSWERS else ""
