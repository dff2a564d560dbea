"""Calls that a round drops and undoes first, when an earlier round could not undo them."""

from __future__ import annotations

from tests.support.program_runs import LOAD, Program

from mulligan.core.model import events as e
from mulligan.testing.history import command, step

UNDOABLE = step("load", action=LOAD.action, undo=command("unload"))


def test_each_visit_of_a_dropped_call_is_undone_once_in_a_round_although_an_earlier_one_failed() -> None:
    """Two visits are left to undo: the first, whose undo failed in round 1, and the second."""
    run = Program()
    run.say(run.load(1), definition=UNDOABLE).ok("load").cancel().fail("load.undo@1")
    run.retry(from_step="load", force=True)
    run.made = 0
    run.say(run.load(1), definition=UNDOABLE).ok("load").cancel(now=True)
    run.retry(from_step="load", force=True)

    undone = []
    while run.state.run.undoing and len(undone) < 5:
        undone.append(run.state.run.undoing)
        run.fail(undone[-1])

    assert undone == ["load.undo@2", "load.undo@1"]
    assert not run.state.calls and run.status == "failed"
    assert len(run.facts(e.UndoFailed)) == 3
