"""The command line about runs that cannot be read: one sentence that says so, whatever does not fit together."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran
from tests.support.damages import DAMAGES, FLOW, Store

from mulligan.service.home import Home

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show",),
    ("show", "--json"),
    ("explain",),
    ("logs",),
    ("events",),
    ("report",),
    ("retry", "--dry-run"),
    ("fork", "--from", "fetch", "--dry-run"),
    ("replay", "--verify"),
    ("cancel",),
)


@pytest.fixture
def damaged(folder: Path) -> dict[str, int]:
    """Runs of the home of this folder, by what is wrong with them."""
    store = Store(Home(folder / ".mulligan"))
    runs = {}
    for number, (name, damage) in enumerate(DAMAGES.items(), 1):
        ran(FLOW)
        damage(store, number)
        runs[name] = number
    return runs


def test_every_command_says_of_a_damaged_run_that_it_is(damaged: dict[str, int]) -> None:
    wrong = []
    for verb, *options in COMMANDS:
        for damage, run_id in damaged.items():
            said = mulligan(verb, run_id, *options)
            # A command that needs nothing of what is damaged answers.
            is_damaged = said.code == 1 and said.err.startswith(f"error[run.damaged]: run {run_id} is damaged: ")
            if not is_damaged and ("error[codec" in said.err or "error[internal" in said.err):
                wrong.append((verb, damage, said.code, said.err[:200]))

    assert wrong == []
    assert mulligan("show", damaged["an event of broken bytes"]).err.splitlines()[0].startswith("error[run.damaged]")
