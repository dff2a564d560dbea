"""Forks of programs: what is recorded is the history, and what ran in the other run runs again."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from tests.support.program_runs import LATER, LOAD, Program, every_row

from mulligan.core.deciding.rounds.fork import plan_fork
from mulligan.core.effects import effects as fx
from mulligan.core.effects.snapshot import restore
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Action
from mulligan.errors import MulliganError, Refused
from mulligan.history.moments import is_at_rest
from mulligan.testing.history import History, command, step, workflow

UNDOABLE = step("load", action=LOAD.action, undo=command("unload"))
SLEEP = step("load", action=Action("wait", {"seconds": 60.0}))


def gathering() -> Program:
    """A program that waits for two calls of three, the first of which has ended."""
    run = Program()
    run.say(run.load(1, branch="0"), run.load(2, branch="1"), run.load(3, branch="2"))
    return run.started("load").ok("load", output="one").started("load#2").say()


def test_a_program_that_waits_goes_on_waiting_in_a_fork():
    fork = gathering().forked()

    assert fork.queued == ["load#2", "load#3"]
    assert (fork.statuses["nightly"], fork["nightly"].attempt, fork["load#2"].attempt) == ("running", 1, 2)
    assert not [one for one in fork.log if isinstance(one.fact, e.AttemptInterrupted) and one.fact.place == "nightly"]


def test_a_fork_inside_a_gather_keeps_those_that_had_ended_and_runs_the_others():
    fork = gathering().forked()

    fork.ok("load#3", output="three").ok("load#2", output="two")
    assert fork.told() == [("load#3", "three", "")]
    fork.say()
    assert fork.told() == [("load#2", "two", "")]
    fork.say(how="returned", output=5)

    assert fork.status == "completed"
    assert fork["load"].output == "one"


def test_a_program_whose_turn_ran_runs_again_over_all_that_is_recorded():
    run = gathering().ok("load#2", output="two")
    run.report(r.TaskStarted(run.clock, "nightly", 1, "w1", "h1", run.turn))

    fork = run.forked()

    assert (fork.statuses["nightly"], fork["nightly"].attempt) == ("ready", 2)
    turn = make_task(fork.state, "nightly").turn
    assert turn is not None and (turn.delivered, turn.deliveries) == (2, ())


def test_wherever_it_is_cut_no_completed_call_runs_again_and_the_program_comes_to_its_end():
    run = gathering().ok("load#2", "load#3").say()
    run.say(run.load(4), definition=SLEEP)
    points = [one.seq for one, two in pairwise(run.log) if is_at_rest(one, two)]
    assert len(points) > 8

    for seq in points:
        done = {one.fact.step for one in run.log[:seq] if isinstance(one.fact, e.StepCompleted)}
        fork = run.forked(seq)
        queued = {one.place for one in fork.effects if isinstance(one, fx.QueueTask)}
        assert not queued & done
        assert restore(fork.definition, every_row(fork.state)) == fork.state
        for _ in range(10):
            for label in fork.queued:
                if label != "nightly":
                    fork.ok(label)
            if fork["nightly"].status == "ready":
                fork.say()
        assert {fork.statuses[label] for label in fork.state.calls} <= {"completed", "running"}


def test_by_the_clock_of_a_program_no_time_passes_between_the_event_and_the_fork():
    run = Program()
    run.say(run.load(1), run.load(2))
    run.clock += timedelta(seconds=30)
    run.ok("load").say()
    turn = make_task(run.state, "nightly").turn

    fork = run.forked()
    fork.clock += timedelta(seconds=10)
    fork.ok("load#2")

    told = make_task(fork.state, "nightly").turn
    assert turn is not None and told is not None
    assert told.begun == turn.begun
    assert [one.at - told.begun for one in told.deliveries] == [40.0]


def test_a_sleep_has_as_much_left_as_then():
    run = Program()
    run.say(run.load(), definition=SLEEP)

    fork = run.forked()

    (timer,) = [one for one in fork.timers if one.place == "load" and one.kind == "attempt"]
    assert timer.due == run.clock + LATER + timedelta(seconds=60)


def test_a_fork_undoes_nothing_that_the_other_run_has_done():
    run = Program()
    run.say(run.load(1), definition=UNDOABLE).ok("load")

    fork = run.forked()
    fork.cancel()

    assert fork.status == "cancelled"
    assert not [one for one in fork.log if isinstance(one.fact, e.UndoStarted)]


def test_calls_that_the_other_run_was_about_to_undo_are_made_again_in_a_fork():
    run = Program()
    run.say(run.load(1), definition=UNDOABLE).ok("load")
    run.say(run.load(2), definition=UNDOABLE).ok("load#2")
    run.cancel(now=True)
    run.retry(from_step="load")
    assert run.state.run.undoing == "load#2.undo@1"

    fork = run.forked()
    fork.ok("load#2.undo@1")

    assert fork.statuses["nightly"] == "ready"
    assert not fork.state.calls


def test_a_program_that_has_made_a_call_keeps_its_inputs_in_a_fork():
    """Its calls follow from them."""
    run = Program()
    begun = len(run.log)
    run.say(run.load(1))

    with pytest.raises(Refused, match="has made calls with another value of 'day'"):
        run.forked(inputs={"day": "monday"}, has_inputs=True)

    assert run.forked(inputs={}, has_inputs=True).statuses["nightly"] == "running"
    assert run.forked(begun, inputs={"day": "monday"}, has_inputs=True).state.run.inputs == {"day": "monday"}


def test_a_fork_of_a_program_from_a_step_is_refused_with_what_can_be_done():
    run = Program()
    run.say(run.load(1))
    steps = History(workflow(step("fetch"))).start()

    with pytest.raises(Refused) as refused:
        plan_fork(run.state, run.state.graph, "load")
    with pytest.raises(Refused, match="the file holds a program"):
        plan_fork(steps.state, run.state.graph, "fetch")

    assert "mulligan fork 1 --at EVENT" in (refused.value.hint or "")


def test_of_a_program_that_has_completed_the_hint_is_a_fork_at_an_event():
    run = Program()
    run.say(how="returned", output=5)

    for ask in (run.retry, run.cancel, run.resume):
        with pytest.raises(MulliganError) as refused:
            ask()
        assert refused.value.hint == ("to go on from one of its events in a new run: mulligan fork 1 --at EVENT")
