"""What a report tells of visits in which something failed: rung by rung, from the log alone."""

from __future__ import annotations

import pytest
from tests.support.nightly import examples

from mulligan.core.model.events import Entry
from mulligan.core.model.workflow import END, Action, Map, Triage, Workflow
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import unhandled
from mulligan.core.turn import fold
from mulligan.history.phrases import UNDO_FAILED
from mulligan.history.story import StoryWriter
from mulligan.service.runs.views.report.visits import FailedVisits, VisitFailure
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow
from proof.simulator.simulation import Simulation


def visits(run: History) -> list[VisitFailure]:
    return visits_of(run.state, run.log, run.state.workflow)


def visits_of(state: State, log: list[Entry], first: Workflow) -> list[VisitFailure]:
    writer, found = StoryWriter(first), FailedVisits()
    for entry in log:
        found.update(entry, writer.lines_for(entry))
    return found.failed_visits(state)


def outcomes_of(run: History) -> list[tuple[str, int, str, str]]:
    return [(one.unit, one.visit, one.answer, one.outcome) for one in visits(run)]


def rungs(visit: VisitFailure) -> dict[str, tuple[str, str]]:
    return {rung.name: (rung.outcome, rung.said) for rung in visit.rungs}


def test_retries_that_are_used_up_are_told_as_tried_and_the_end_has_the_last_word():
    run = History(workflow(step("a", rules=retry(1)))).start().fail("a").fail("a", exit_code=7)

    [visit] = visits(run)

    assert (visit.answer, visit.outcome, visit.failures) == ("not handled: the run fails", "open", 2)
    assert rungs(visit) == {
        "retry": (
            "tried",
            "retry 1 of 1 at once (rule for any failure); "
            "no retry: the only retry of the rule for any failure is used up",
        ),
        "handle": ("absent", "no handler"),
        "triage": ("absent", "no triage"),
        "route": ("absent", "no failure edge"),
        "end": ("dealt", "not handled"),
    }
    assert visit.failed_attempts == [("a", 1), ("a", 2)]


def test_a_rule_that_does_not_match_is_a_rung_that_was_passed():
    run = History(workflow(step("a", rules=retry(0), triage=Triage(when="always")))).start().fail("a")

    [visit] = visits(run)

    assert rungs(visit)["retry"] == ("passed", "no retry: the rule for any failure allows none")
    assert rungs(visit)["triage"] == ("tried", "parked for a decision")
    assert rungs(visit)["route"] == ("unasked", "")
    assert (visit.answer, visit.outcome) == ("parked for a decision", "open")


def test_what_a_person_decided_stands_at_triage():
    run = History(workflow(step("a", triage=Triage()))).start().fail("a").classify("a", "retry").ok("a")

    [visit] = visits(run)

    assert rungs(visit)["triage"] == ("dealt", "parked for a decision; someone decided: retry: seen before")
    assert (visit.answer, visit.outcome) == ("parked, then completed", "mended")


def test_a_handler_that_fails_too_is_told_and_the_climb_goes_on():
    flow = workflow(step("a", on_failure=handler(), next=[edge("b", "failure")]), step("b"))
    run = History(flow).start().fail("a").fail("a.on_failure@1.0", exit_code=4).ok("b")

    [visit] = visits(run)

    assert rungs(visit)["handle"] == (
        "tried",
        "recovery handler started; handler also failed with EXIT_NONZERO 4",
    )
    assert rungs(visit)["route"] == ("dealt", "routed to 'b'")
    assert (visit.answer, visit.outcome) == ("routed to 'b', which completed", "mended")


def test_a_worker_that_was_lost_is_a_trouble_that_a_rerun_mended():
    run = History(workflow(step("a"))).start().started("a").lose("a").ok("a")

    [visit] = visits(run)

    assert (visit.what, visit.code, visit.answer) == ("its worker was lost", "WORKER_LOST", "then completed")
    assert rungs(visit)["retry"] == ("dealt", "runs again as attempt 2; a lost worker does not use up a retry")


def test_a_step_that_waits_for_its_retry_is_under_way():
    run = History(workflow(step("a", rules=retry(3, delay=60)))).start().fail("a")

    assert outcomes_of(run) == [("a", 1, "its next attempt is scheduled", "under_way")]


def test_each_visit_is_told_apart():
    flow = workflow(step("a", next=[edge("fix", "failure", then="rerun")]), step("fix"))
    run = History(flow).start().fail("a").ok("fix").fail("a").ok("fix").ok("a")

    mended = "routed to 'fix', which completed; then it ran again"
    assert outcomes_of(run) == [("a", 1, mended, "mended"), ("a", 2, mended, "mended")]


def test_an_item_that_failed_in_an_earlier_round_has_had_a_new_chance():
    flow = workflow(step("m", map=Map(over=expression("list")), do=(command("one"),)))
    run = History(flow, answers={"list": [1, 2]}).start().ok("m[0].0").fail("m[1].0")

    before = outcomes_of(run)
    run.retry().ok("m[1].0")

    again = "completed in round 2"
    assert before == [("m", 1, "not handled: the run fails", "open"), ("m[1]", 1, "its step fails", "open")]
    assert outcomes_of(run) == [("m", 1, again, "mended"), ("m[1]", 1, again, "mended")]


def test_an_item_climbs_two_rungs_and_the_rest_is_its_steps():
    flow = workflow(step("m", map=Map(over=expression("list")), do=(command("one", rules=retry(1)),)))
    run = History(flow, answers={"list": [1]}).start().fail("m[0].0").ok("m[0].0")

    [visit] = visits(run)

    assert (visit.unit, visit.step, visit.is_item) == ("m[0]", "m", True)
    assert rungs(visit) == {
        "retry": ("dealt", "retry 1 of 1 at once (rule for any failure)"),
        "handle": ("unasked", ""),
    }


def test_an_undo_that_failed_is_open():
    flow = workflow(step("a", undo=command("undo")), step("b", needs=["a"]))
    run = History(flow).start().ok("a").fail("b").fail("a.undo@1", exit_code=5)

    assert ("a", 1, UNDO_FAILED, "open") in outcomes_of(run)


def test_an_undo_that_failed_is_closed_when_a_later_round_has_undone_the_visit():
    flow = workflow(step("a", undo=command("undo")), step("b", needs=["a"]))
    run = History(flow).start().ok("a").fail("b").fail("a.undo@1")

    run.retry().fail("b").ok("a.undo@1")

    assert ("a", 1, "undone in a later round", "mended") in outcomes_of(run)


def test_what_a_stopped_run_cancelled_is_left():
    run = History(workflow(step("a", rules=retry(3, delay=60)), step("b"))).start().fail("a").started("b").cancel()

    [(unit, _, _, _), *_] = outcomes_of(run)

    assert unit == "a"


def test_a_remediation_that_was_of_no_use_is_let_pass_by_the_end_as_any_failure():
    flow = workflow(step("a", next=[edge("b", "failure")]), step("b"), end=step(END, action=Action("shell")))
    run = History(flow).start().fail("a").fail("b")
    run.ok(END, output={"status": "completed", "reason": "so"})

    assert run.status == "completed"
    assert outcomes_of(run) == [
        ("a", 1, "routed to 'b', which failed: not handled, but end returned completed", "left"),
        ("b", 1, "not handled, but end returned completed", "left"),
    ]


@pytest.mark.parametrize("seed", range(examples(15, 60)))
def test_whoever_is_open_when_a_run_has_ended_is_whom_the_verdict_counts(seed: int):
    history = Simulation(f"visits {seed}").run()
    state = fold(history.workflow, history.log)

    found = visits_of(state, history.log, history.workflow)

    is_passed_by_end = state.run.status == "completed"
    named = {(one.unit, one.visit) for one in found if one.outcome == "open" and not one.is_item and one.unit != END}
    undone = {(one.unit, one.visit) for one in found if "undo failed" in one.answer}
    counted = {(record.step, record.visit) for record in unhandled(state)}
    assert state.run.status in RUN_ENDED
    assert named - undone == (set() if is_passed_by_end else counted - undone)
