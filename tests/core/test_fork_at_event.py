"""A fork that continues a run from one of its events: what it keeps, what it does again, what it decides otherwise."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.effects.snapshot import changes, restore
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.codec import decode_log
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.workflow import Action, Backoff, Budget, Rule, Template, Triage, Workflow, decode
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.turn import fold, turn
from mulligan.errors import Refused, StepNotParked
from mulligan.history.moments import is_at_rest
from mulligan.testing.history import Answers, History, command, expression, step, workflow

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("v*/*.log.jsonl"))
LATER = timedelta(days=2)
PARKING = workflow(
    step("fetch"),
    step("slow"),
    step("deploy", needs=["fetch"], triage=Triage(when="always", timeout=600.0)),
    step("announce", needs=["deploy"]),
)


def forked(history: History, flow: Workflow, seq: int | None = None, **fields: Any) -> History:
    """A run that continues another one, two days later."""
    seq = len(history.log) if seq is None else seq
    fork = History(flow, evaluator=history.evaluator)
    fork.clock = history.clock + LATER
    request = r.RunRequested(
        fork.clock,
        run_id=2,
        history=pack_history(history.log[:seq]),
        forked_from=1,
        forked_at=seq,
        by="ann",
        uid="new",
        **fields,
    )
    fork.report(request)
    assert fold(flow, fork.log) == fork.state
    return fork


def parked() -> History:
    run = History(PARKING).start().started("fetch").ok("fetch", output=5).started("slow").started("deploy")
    return run.fail("deploy", 3)


def test_completed_steps_keep_their_results_and_what_ran_runs_again_without_spending_a_retry():
    fork = forked(parked(), PARKING)

    assert fork.statuses == {"fetch": "completed", "slow": "ready", "deploy": "pending_failed", "announce": "waiting"}
    assert fork["fetch"].output == 5
    assert (fork["slow"].attempt, fork["slow"].climb.tries, fork["slow"].climb.losses) == (2, 0, 0)
    assert fork.queued == ["slow"]
    assert (fork.state.run.run_id, fork.state.run.uid, fork.state.run.forked_at) == (2, "new", 15)


def test_what_was_queued_is_queued_in_the_fork_and_nothing_that_had_been_queued_before_it():
    history = History(PARKING).start().started("fetch").ok("fetch")

    fork = forked(history, PARKING)

    assert {one.place: one.attempt for one in fork.effects if isinstance(one, fx.QueueTask)} == {"slow": 1, "deploy": 1}


def test_another_decision_takes_the_place_of_the_recorded_one():
    history = parked()
    seq = len(history.log)
    history.classify("deploy", "fail")
    fork = forked(history, PARKING, seq, decision=r.Classified(history.clock, "deploy", "retry", "ann", "again"))

    assert history["deploy"].status == "failed"
    assert fork["deploy"].status == "ready" and sorted(fork.queued) == ["deploy", "slow"]
    assert fork.started("slow").ok("slow").started("deploy").ok("deploy").started("announce").ok("announce").status == (
        "completed"
    )


def test_a_decision_that_is_not_possible_then_is_refused_and_nothing_is_kept():
    history = parked().classify("deploy", "retry")

    state = State(PARKING)
    request = r.RunRequested(
        history.clock + LATER,
        run_id=2,
        history=pack_history(history.log),
        forked_from=1,
        forked_at=len(history.log),
        decision=r.Classified(history.clock, "deploy", "fail", "ann", "no"),
    )
    with pytest.raises(StepNotParked):
        turn(state, request, Answers())

    assert state == State(PARKING)


def test_a_fork_that_stops_at_once_ends_although_there_is_nothing_left_to_decide():
    """The agent was asked once, as often as it may be: asked again, it fails, and the run fails fast."""
    asking = step("ask", action=Action("agent", {"prompt": "What now?"}))
    flow = workflow(asking, *PARKING.steps, budget=Budget(calls=1), fail_fast="always")
    history = History(flow).start().started("ask").started("fetch").ok("fetch").started("deploy").fail("deploy", 3)
    assert (history["ask"].status, history["deploy"].status) == ("running", "pending_failed")

    fork = forked(history, flow, decision=r.Classified(history.clock, "deploy", "retry", "ann", "again"))

    assert (fork["ask"].failure.code, fork["deploy"].status) == ("BUDGET_EXCEEDED", "cancelled")
    assert fork.status == "failed"


def test_a_run_that_has_started_is_not_started_again_with_a_history():
    history = parked()

    with pytest.raises(Refused):
        history.report(r.RunRequested(history.clock, run_id=1, history=pack_history(history.log), forked_from=1))


def test_time_has_not_passed_for_the_fork():
    flow = workflow(
        step("flaky", rules=(Rule(any=True, max_retries=2, backoff=Backoff(delay=30.0)),), deadline=900.0),
        step("deploy", triage=Triage(when="always", timeout=600.0)),
        step("nap", action=Action("wait", {"seconds": 60})),
        timeout=3600.0,
    )
    history = History(flow).start().started("flaky").started("deploy").fail("flaky").fail("deploy").wait(10)
    before = {(one.kind, one.place): one.due for one in fx.open_timers(history.state)}

    fork = forked(history, flow)

    passed = fork.clock - history.log[-1].at
    after = {(one.kind, one.place): one.due for one in fx.open_timers(fork.state)}
    assert {*before} == {("retry", "flaky"), ("triage", "deploy"), ("attempt", "nap"), ("run", "")}
    assert after == {key: due + passed for key, due in before.items()}
    assert {(one.kind, one.place, one.due) for one in fork.timers} == {(*key, due) for key, due in after.items()}
    assert fork.statuses == history.statuses


def test_a_wait_until_a_time_of_day_ends_at_that_time():
    flow = workflow(step("nap", action=Action("wait", {"until": "2026-01-01T06:00:00Z"})))
    history = History(flow).start()

    fork = forked(history, flow)

    assert [one.due for one in fork.timers] == [history["nap"].due]


def test_with_other_inputs_what_was_queued_gets_the_new_values_and_what_completed_keeps_the_old_ones():
    action = Action("shell", {"text": "go"}, {"target": Template((expression("inputs.target", "inputs"),))})
    flow = workflow(step("first", action=action), step("next", needs=["first"], action=action))
    answers = {"inputs.target": lambda names: names["inputs"]["target"]}
    history = History(flow, answers).start({"target": "old"}).started("first").ok("first", output="to old")

    fork = forked(history, flow, inputs={"target": "new"}, has_inputs=True)

    assert fork["first"].output == "to old"
    assert (fork["next"].attempt, fork["next"].bindings) == (2, {"target": "new"})
    assert history["next"].bindings == {"target": "old"}
    assert [one for one in fork.effects if isinstance(one, fx.QueueTask)] == [fx.QueueTask("next", 2)]


def test_a_child_run_is_called_again():
    flow = workflow(step("call", action=Action("workflow", {"file": "child"})))
    history = History(flow).start()

    fork = forked(history, flow)

    assert [one for one in fork.effects if isinstance(one, fx.StartChild)] == [fx.StartChild("call", 2)]
    assert fork.child_ended("call").status == "completed"


def test_a_child_run_whose_time_was_up_has_timed_out():
    flow = workflow(step("call", action=Action("workflow", {"file": "child"}), timeout=60.0))
    history = History(flow).start().wait(60)
    assert history["call"].phase == "timeout"

    fork = forked(history, flow)

    assert fork["call"].failure is not None and fork["call"].failure.code == "TIMEOUT"


def test_what_the_other_run_did_is_not_undone_by_the_fork():
    flow = workflow(step("make", undo=command("unmake")), step("use", needs=["make"]))
    history = History(flow).start().started("make").ok("make").started("use")
    assert [one.step for one in history.state.undoables] == ["make"]

    fork = forked(history, flow).started("use").cancel(now=False)

    assert fork.facts(e.UndoStarted) == [] and fork.state.undoables == []


def test_a_paused_run_is_paused_in_the_fork_and_goes_on_when_it_is_resumed():
    history = parked().pause()

    fork = forked(history, PARKING)

    assert fork.status == "paused"
    assert fork.resume().status == "running" and fork["slow"].status == "ready"


def test_a_fork_can_be_forked():
    fork = forked(parked(), PARKING)
    again = History(PARKING)
    again.clock = fork.clock + LATER
    again.report(
        r.RunRequested(
            again.clock,
            run_id=3,
            history=pack_history(fork.log),
            forked_from=2,
            forked_at=len(fork.log),
            decision=r.Classified(again.clock, "deploy", "fail", "ann", "no"),
        )
    )

    assert [one.run_id for one in again.facts(e.RunForked)] == [1, 2]
    assert again["deploy"].status == "failed"


def test_an_attempt_that_fails_as_it_is_scheduled_is_one_turn_and_no_fork_is_left_with_half_of_it():
    """A wait needs no worker: nothing would ever start it where it is scheduled, and has not failed yet."""
    wait = Action("wait", {"seconds": {"${}": "V"}}, {"V": Template((expression("inputs.wait", "inputs"),))})
    rule = Rule(codes=("INPUT_INVALID",), max_retries=2, backoff=Backoff(delay=30.0))
    flow = workflow(step("nap", action=wait, rules=(rule,)))
    history = History(flow, {"inputs.wait": lambda names: names["inputs"]["wait"]}).start({"wait": "soon"})
    history.wait(30).wait(30)
    assert [type(one.fact) for one in history.log if one.caused_by == 0 and one.seq > 1] == (
        [e.AttemptScheduled, e.AttemptFailed] * 2
    )

    points = [one.seq for one, two in pairwise(history.log) if is_at_rest(one, two)]

    assert points and history.status == "failed"
    for seq in points:
        assert forked(history, flow, seq).wait(30).wait(30).status == "failed"


@pytest.mark.parametrize("log", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem[:2]}")
def test_every_golden_log_can_be_continued_wherever_it_was_at_rest(log: Path):
    definition = decode((log.parent / log.name.replace(".log.jsonl", ".workflow.json")).read_bytes())
    entries = [*decode_log(log.read_bytes())]
    points = [one.seq for one, two in pairwise(entries) if is_at_rest(one, two)]

    for seq in points[:: max(1, len(points) // 20)]:
        if fold(definition, entries[:seq]).run.status in RUN_ENDED:
            continue
        state = State(definition)
        state.begin()
        request = r.RunRequested(
            entries[seq - 1].at + LATER,
            run_id=2,
            history=pack_history(entries[:seq]),
            forked_from=1,
            forked_at=seq,
        )
        follows = turn(state, request, Answers())
        assert restore(definition, changes(state)) == state
        state.commit()
        assert fold(definition, follows) == state
        assert follows[1:seq] == entries[1:seq]
