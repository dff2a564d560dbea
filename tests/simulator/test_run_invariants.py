"""Every promise can complain: a log in which it is broken, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Kept, Route
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Handler, Map, Need, Rule, Step, Workflow
from mulligan.core.state.state import State
from mulligan.ports import RunRecord
from mulligan.testing.clock import START
from mulligan.testing.history import History, command, edge, expression, retry, step, workflow
from proof.invariants.liveness import (
    PendingWork,
    promise_10_a_run_has_a_story,
    promise_10_a_run_that_waits_says_for_what,
    promise_10_every_place_has_a_waker,
    promise_10_no_step_is_forgotten,
    promise_10_the_engine_has_met_no_bug,
)
from proof.invariants.run_invariants import (
    FACT_PROMISES,
    RunInvariants,
    check,
    promise_1_every_step_has_ended,
    promise_7_every_queued_task_has_a_place,
    promise_7_no_task_outlives_its_run,
    promise_8_a_fork_keeps_what_was_done,
    promise_8_the_line_says_what_the_log_says,
    promise_8_the_log_can_be_written_down,
    promise_8_the_log_replays,
    promise_8_the_tables_say_what_the_log_says,
    promise_9_no_secret_is_logged,
)

BROKE = failure("EXIT_NONZERO", "exit code 1")
SCRIPTED = (Rule(any=True, max_retries=1, recovery_script=command("script")),)
WORKFLOW = workflow(
    step("a", rules=SCRIPTED, on_failure=Handler((command("fix"),)), undo=command("undo"), max_attempts=2),
    step("b", undo=command("undo"), max_visits=1, on_failure=Handler((command("tidy"),), "cleanup")),
    step("m", map=Map(max_parallel=1), do=(command("check"),)),
    step("c", next=[edge("r", "failure"), "j", "k"]),
    step("d", next=["j", edge("q", "failure", then="rerun")]),
    step("q"),
    step("l", next=["l", "end"]),
    step("r"),
    step("n", needs=["a", "b"]),
    step("j", join="all"),
    step("k"),
)

STARTED = e.RunStarted(1, "test")
ENTERED = e.StepEntered("a", 1)
FIRST = e.AttemptScheduled("a", 1)
RESERVED = e.RetryScheduled("a", 2, 0, 1, START, has_script=True)
SCRIPT = e.CommandEntered("a.script@1", "a", "script")
SCRIPT_OVER = e.CommandCompleted("a.script@1", "a", "script")
FAILED = e.AttemptFailed("a", 1, BROKE)
HANDLED = e.HandlerStarted("a", 1, "recovery")
STOPPING = e.RunStopping("cancelled")
END = (e.StepEntered("end", 1), e.StepCompleted("end", 1))
ROUTED = (
    e.StepEntered("c", 1),
    e.StepFailed("c", 1, BROKE, 0, Route("selected", 0, "r", 1), (0,)),
)
UNDO_A = (e.UndoStarted("a", 1), e.CommandEntered("a.undo@1", "a", "undo"))


def done(name: str, visit: int = 1) -> tuple[e.Fact, ...]:
    return e.StepEntered(name, visit), e.StepCompleted(name, visit)


def checked(*facts: Any, definition: Workflow = WORKFLOW) -> RunInvariants:
    """The promises, asked about these facts one by one."""
    promises = RunInvariants(definition)
    for number, fact in enumerate(facts, 1):
        promises.check_entry(e.Entry(number, START, number - 1, fact))
    return promises


def complaint(*facts: Any, definition: Workflow = WORKFLOW) -> str:
    """The first sentence about what is wrong with the last of these facts; the others must be in order."""
    promises = checked(*facts[:-1], definition=definition)
    with pytest.raises(AssertionError) as caught:
        promises.check_entry(e.Entry(len(facts), START, len(facts) - 1, facts[-1]))
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        # 1: one ending per round, through end, once
        ((STARTED, e.RunFailed()), "promise 1: the round ended, and 'end' has ended 0 times (seq 2)"),
        ((STARTED, *END, e.RunFailed(round=2)), "promise 1: round 2 ended, and it is round 1 (seq 4)"),
        ((STARTED, *END, *END[:1]), "promise 1: 'end' was entered twice in round 1 (seq 4)"),
        ((STARTED, ENTERED, *END[:1]), "promise 1: 'end' was entered while ['a'] had not ended (seq 3)"),
        (
            (STARTED, *done("a"), *UNDO_A, *END[:1]),
            "promise 1: 'end' was entered while the undo of ('a', 1) had not ended (seq 6)",
        ),
        (
            (STARTED, *END, e.StepEntered("a", 1), e.RunFailed()),
            "promise 1: the round ended while ['a'] had not (seq 5)",
        ),
        (
            (STARTED, *END, e.RunCompleted(), e.StepSkipped("a", "when")),
            "promise 1: StepSkipped came after the round's last event (seq 5)",
        ),
        (
            (STARTED, *END, e.RunCompleted(), e.RunCompleted()),
            "promise 1: RunCompleted came after the round's last event (seq 5)",
        ),
        (
            (STARTED, STOPPING, *END, e.RunFailed()),
            "promise 1: an operator's cancel was there, and so is RunFailed (seq 5)",
        ),
        (
            (STARTED, *END, e.RunCancelled()),
            "promise 1: an operator's cancel was not there, and so is RunCancelled (seq 4)",
        ),
        (
            (STARTED, *done("a"), e.UndoStarted("a", 1), e.UndoCompleted("a", 1), *END, e.RunCompleted()),
            "promise 1: the run completed, and its work was undone (seq 8)",
        ),
        (
            (STARTED, *END, e.RunCompleted(failed_steps_count=2)),
            "promise 1: the run completed with 2 unhandled failures (seq 4)",
        ),
        # told from the log alone: nothing failed, something failed, its remediation was skipped
        ((STARTED, *END, e.RunFailed()), "promise 1: RunFailed, and unhandled are [] (seq 4)"),
        (
            (STARTED, ENTERED, e.StepFailed("a", 1, BROKE, routed_to_end=True), *END, e.RunCompleted()),
            "promise 1: RunCompleted, and unhandled are ['a'] (seq 6)",
        ),
        ((STARTED, *ROUTED, *END, e.RunCompleted()), "promise 1: RunCompleted, and unhandled are ['c'] (seq 6)"),
        ((STARTED, *ROUTED, *done("r"), *END, e.RunFailed()), "promise 1: RunFailed, and unhandled are [] (seq 8)"),
        # 2: one result per attempt
        (
            (STARTED, ENTERED, FIRST, e.AttemptSucceeded("a", 1), FAILED),
            "promise 2: attempt 1 of 'a' has two results (seq 5)",
        ),
        (
            (STARTED, ENTERED, FIRST, e.AttemptScheduled("a", 2, "lost"), e.AttemptSucceeded("a", 1)),
            "promise 2: attempt 1 of 'a' is not the last one (seq 5)",
        ),
        ((STARTED, ENTERED, FIRST, FIRST), "promise 2: attempt 1 of 'a' came after attempt 1 (seq 4)"),
        # 3: retries, reruns, visits, defaults within their budgets
        (
            (STARTED, ENTERED, FIRST, FAILED, e.RetryScheduled("a", 2, 0, 2, START)),
            "promise 3: retry 2 of 'a' came after retry 0 (seq 5)",
        ),
        (
            (STARTED, ENTERED, FIRST, FAILED, RESERVED, e.RetryScheduled("a", 3, 0, 2, START)),
            "promise 3: retry 2 of 'a', and 1 are the limit (seq 6)",
        ),
        (
            (STARTED, ENTERED, FIRST, FAILED, e.AttemptFailed("a", 2, BROKE), RESERVED),
            "promise 3: 'a' has had 2 tries of 2 (seq 6)",
        ),
        (
            (STARTED, ENTERED, *(e.AttemptScheduled("a", n, "lost") for n in (1, 2, 3, 4))),
            "promise 3: 'a' runs again after 4 losses (seq 6)",
        ),
        (
            (STARTED, ENTERED, e.AttemptScheduled("a", 1, "rerun")),
            "promise 3: the handler of 'a' has granted 0 reruns already (seq 3)",
        ),
        (
            (STARTED, *done("b"), *done("b", 2), e.StepEntered("b", 3)),
            "promise 3: 'b' is visited again, and 1 visits are the limit (seq 6)",
        ),
        (
            (
                *(STARTED, ENTERED),
                *[e.StepClassified("a", 1, "retry", "nobody came", "timeout", is_default=True)] * 2,
            ),
            "promise 3: 'a' was not classified, and is retried once more (seq 4)",
        ),
        (
            (STARTED, ENTERED, FIRST, e.AttemptFailed("a", 1, failure("HTTP_4XX")), RESERVED),
            "promise 3: HTTP_4XX is fatal, and no rule of 'a' names it (seq 5)",
        ),
        (
            (STARTED, *done("b"), e.StepEntered("b", 2), e.AttemptScheduled("b", 1)),
            "promise 3: 'b' has had its visits, and this one is tried (seq 5)",
        ),
        # 4: everything starts once per cause
        ((STARTED, ENTERED, e.StepEntered("a", 2)), "promise 4: visit 2 of 'a' follows visit 1 (seq 3)"),
        ((STARTED, *done("a"), e.StepEntered("a", 3)), "promise 4: visit 3 of 'a' follows visit 1 (seq 4)"),
        ((STARTED, *done("a"), e.StepCompleted("a", 1)), "promise 4: visit 1 of 'a' ended twice (seq 4)"),
        ((STARTED, ENTERED, SCRIPT), "promise 4: the script of 'a' runs for no retry (seq 3)"),
        (
            (STARTED, ENTERED, e.RetryScheduled("a", 2, 0, 1, START), SCRIPT),
            "promise 4: the script of 'a' runs for no retry (seq 4)",
        ),
        (
            (STARTED, ENTERED, RESERVED, SCRIPT, SCRIPT_OVER, e.CommandEntered("a.script@x", "a", "script")),
            "promise 4: the script of 'a' runs twice for one retry (seq 6)",
        ),
        ((STARTED, ENTERED, RESERVED, SCRIPT, SCRIPT), "promise 4: 'a.script@1' was entered twice (seq 5)"),
        (
            (STARTED, ENTERED, e.CommandEntered("a.on_failure@1.0", "a", "handler")),
            "promise 4: 'a.on_failure@1.0' runs outside of its handler (seq 3)",
        ),
        (
            (STARTED, *done("a"), e.CommandEntered("a.undo@1", "a", "undo")),
            "promise 4: 'a.undo@1' runs although nothing is being undone (seq 4)",
        ),
        (
            (STARTED, ENTERED, e.AttemptScheduled("a", 1), *[e.AttemptStarted("a", 1)] * 2),
            "promise 2: attempt 1 of 'a' started twice (seq 5)",
        ),
        (
            (STARTED, ENTERED, HANDLED, HANDLED),
            "promise 4: the handler of 'a' started twice for one failure (seq 4)",
        ),
        (
            (STARTED, ENTERED, HANDLED, e.HandlerFailed("a", 1, BROKE), HANDLED),
            "promise 4: the handler of 'a' started twice for one failure (seq 5)",
        ),
        (
            (STARTED, ENTERED, e.HandlerSucceeded("a", 1, "recovery")),
            "promise 4: a handler of 'a' ended that did not run (seq 3)",
        ),
        ((STARTED, e.UndoStarted("a", 1)), "promise 4: ('a', 1) is undone twice, or did not complete (seq 2)"),
        (
            (STARTED, *done("a"), e.UndoStarted("a", 1), e.UndoFailed("a", 1, BROKE), e.UndoStarted("a", 1)),
            "promise 4: ('a', 1) is undone twice, or did not complete (seq 6)",
        ),
        (
            (STARTED, *done("a"), *done("b"), e.UndoStarted("b", 1), e.UndoStarted("a", 1)),
            "promise 4: the undo of ('a', 1) started while ('b', 1) was being undone (seq 7)",
        ),
        (
            (STARTED, *done("a"), *done("b"), e.UndoStarted("a", 1), e.UndoCompleted("a", 1), e.UndoStarted("b", 1)),
            "promise 4: ('b', 1) completed after what was undone before it (seq 8)",
        ),
        ((STARTED, e.LoopFired("a", 0, "a")), "promise 4: the loop of 'a' fired and was not taken (seq 2)"),
        (
            (STARTED, e.StepEntered("c", 1), e.StepFailed("c", 1, BROKE, route=Route("selected", 0, "r", 1))),
            "promise 4: 'c' chose a route and did not take it (seq 3)",
        ),
        (
            (
                *(STARTED, e.StepEntered("c", 1)),
                e.StepFailed("c", 1, BROKE, 0, Route("selected", 0, "r", 1), (0,), routed_to_end=True),
            ),
            "promise 4: 'c' went to r and to 'end' (seq 3)",
        ),
        # a step is entered, and skipped, for a cause
        (
            (STARTED, *done("a"), e.StepEntered("n", 1)),
            "promise 4: 'n' was entered, and its needs of ['b'] are not met (seq 4)",
        ),
        (
            (STARTED, *done("a"), *done("b"), e.StepSkipped("n", "need_unmet")),
            "promise 4: 'n' was skipped, and all its needs are met (seq 6)",
        ),
        (
            (STARTED, e.StepEntered("c", 1), e.StepCompleted("c", 1, taken=(1,)), e.StepEntered("j", 1)),
            "promise 4: 'j' was entered with 1 of 2 arrivals for a join 'all' (seq 4)",
        ),
        ((STARTED, e.StepEntered("k", 1)), "promise 4: 'k' was entered with 0 of 1 arrivals for a join 'any' (seq 2)"),
        (
            (STARTED, e.StepEntered("c", 1), e.StepCompleted("c", 1, taken=(2,)), e.StepSkipped("k", "no_arrival")),
            "promise 4: 'k' was skipped, and all arrivals are there (seq 4)",
        ),
        (
            (STARTED, e.StepEntered("l", 1), e.StepCompleted("l", 1, taken=(0, 1))),
            "promise 4: 'l' took a loop edge and others beside it (seq 3)",
        ),
        (
            (
                *(STARTED, e.StepEntered("d", 1)),
                e.StepFailed("d", 1, BROKE, 0, Route("selected", 1, "q", 1), (1,)),
                *(*done("q"), *END, e.RunCompleted()),
            ),
            "promise 4: 'q' completed, and 'd' was not notified (seq 8)",
        ),
        # 5: nothing starts early
        (
            (STARTED, ENTERED, RESERVED, SCRIPT, e.AttemptScheduled("a", 2, "retry")),
            "promise 5: 'a' is tried again while its recovery script runs (seq 5)",
        ),
        (
            (STARTED, ENTERED, e.StepParked("a", 1, 1, BROKE, "unmatched"), e.AttemptScheduled("a", 2)),
            "promise 5: 'a' is tried again while it is parked (seq 4)",
        ),
        (
            (
                STARTED,
                ENTERED,
                e.RetryScheduled("a", 2, 0, 1, START + timedelta(seconds=1)),
                e.AttemptScheduled("a", 2),
            ),
            "promise 5: 'a' is tried again before its delay is over (seq 4)",
        ),
        # 6: a stopped run starts nothing
        ((STARTED, STOPPING, ENTERED), "promise 6: StepEntered for 'a' in a run that stops (seq 3)"),
        ((STARTED, ENTERED, STOPPING, FIRST), "promise 6: AttemptScheduled for 'a' in a run that stops (seq 4)"),
        ((STARTED, ENTERED, STOPPING, RESERVED), "promise 6: RetryScheduled for 'a' in a run that stops (seq 4)"),
        ((STARTED, ENTERED, STOPPING, HANDLED), "promise 6: HandlerStarted for 'a' in a run that stops (seq 4)"),
        (
            (STARTED, ENTERED, STOPPING, e.StepParked("a", 1, 1, BROKE, "always")),
            "promise 6: StepParked for 'a' in a run that stops (seq 4)",
        ),
        (
            (STARTED, *done("a"), STOPPING, e.LoopTaken("a", 0, "a", 1, START)),
            "promise 6: LoopTaken for 'a' in a run that stops (seq 5)",
        ),
        (
            (STARTED, e.RunStopping("cancelled", now=True), e.HandlerStarted("b", 1, "cleanup")),
            "promise 6: HandlerStarted for 'b' in a run that stops (seq 3)",
        ),
        (
            (STARTED, *done("a"), e.RunStopping("cancelled", now=True), e.UndoStarted("a", 1)),
            "promise 6: an undo started in a run that was cancelled at once (seq 5)",
        ),
        (
            (STARTED, e.StepEntered("c", 1), STOPPING, e.StepFailed("c", 1, BROKE, routed_to_end=True)),
            "promise 6: 'c' was routed in a run that stops (seq 4)",
        ),
        # 7: no more items at a time than there are slots
        (
            (STARTED, e.StepEntered("m", 1), e.ItemEntered("m[0]", "m", 0), e.ItemEntered("m[0]", "m", 0)),
            "promise 7: 'm[0]' was entered twice (seq 4)",
        ),
        (
            (STARTED, e.StepEntered("m", 1), e.ItemEntered("m[0]", "m", 0), e.ItemEntered("m[1]", "m", 1)),
            "promise 7: 'm[1]' was entered while 1 items ran (seq 4)",
        ),
    ],
)
def test_a_log_that_breaks_a_promise_is_found(facts: tuple[Any, ...], sentence: str) -> None:
    assert complaint(*facts) == sentence


@pytest.mark.parametrize(
    "facts",
    [
        # cleanup handlers, undo and end go on in a run that stops
        (
            *(STARTED, e.StepEntered("b", 1), STOPPING, e.HandlerStarted("b", 0, "cleanup")),
            *(e.CommandEntered("b.on_failure@0.0", "b", "handler"), e.AttemptScheduled("b.on_failure@0.0", 1)),
        ),
        (STARTED, *done("a"), STOPPING, *UNDO_A, e.AttemptScheduled("a.undo@1", 1)),
        (STARTED, STOPPING, e.StepEntered("end", 1), e.AttemptScheduled("end", 1)),
        # a new round lifts everything
        (STARTED, STOPPING, *END, e.RunCancelled(), e.RunReopened(2, "someone", "again"), ENTERED, FIRST),
        # a late report is refused after the end
        (STARTED, *END, e.RunCompleted(), e.ReportRefused("a", 1, "run_ended")),
        # the visit beyond max_visits is entered to fail
        (STARTED, *done("b"), e.StepEntered("b", 2)),
    ],
)
def test_a_log_that_keeps_every_promise_is_let_through(facts: tuple[Any, ...]) -> None:
    assert len(checked(*facts).facts.log) == len(facts)


BEHIND = workflow(
    step("a"),
    step("b", needs=[Need("a", "always")]),
    step("c", join="first"),
    step("x", next=["c"]),
    step("y", next=["c"]),
)
LED_TO_C = (e.StepEntered("x", 1), e.StepCompleted("x", 1, taken=(0,)))
ENDED_ONCE = (STARTED, *done("a"), *done("b"), *LED_TO_C, *done("c"), *done("y"), *END, e.RunCompleted())


def reopened(*again: str, **fields: Any) -> tuple[e.Fact, ...]:
    """The next round, with the steps that are visited in it."""
    visits = (fact for name in again for fact in done(name, 2))
    end = (e.StepEntered("end", 2), e.StepCompleted("end", 2))
    return (e.RunReopened(2, "someone", "again", **fields), *visits, *end, e.RunCompleted(round=2))


def test_a_result_that_is_older_than_what_it_depends_on_is_found() -> None:
    assert complaint(*ENDED_ONCE, *reopened("a", fresh=()), definition=BEHIND) == (
        "promise 4: 'a' ran in round 2, and 'b', which depends on it, kept its result (seq 20)"
    )


@pytest.mark.parametrize(
    "facts",
    [
        reopened("a", "b", fresh=()),
        # It was asked for, or no version of that time did otherwise.
        reopened("a", fresh=(), keep_completed=True),
        reopened("a"),
        # It ran for another arrival, so it does not depend on this one.
        reopened("y", fresh=()),
    ],
)
def test_a_round_that_runs_what_depends_on_it_or_is_to_keep_it_is_let_through(facts: tuple[e.Fact, ...]) -> None:
    assert checked(*ENDED_ONCE, *facts, definition=BEHIND).facts.round == 2


def test_a_retry_behind_its_deadline_is_found() -> None:
    slow = workflow(step("a", rules=retry(3), deadline=10.0))
    late = e.RetryScheduled("a", 2, 0, 1, START + timedelta(seconds=10))

    assert complaint(STARTED, ENTERED, FIRST, FAILED, late, definition=slow) == (
        "promise 3: the retry of 'a' is due after its deadline (seq 5)"
    )


def test_the_time_before_a_fork_does_not_count_for_a_deadline() -> None:
    promises = checked(STARTED, ENTERED, FIRST, FAILED, definition=workflow(step("a", rules=retry(3), deadline=10.0)))
    forked_at = START + timedelta(minutes=11)
    promises.check_entry(e.Entry(5, forked_at, 0, e.RunForked(1, 4)))

    promises.check_entry(e.Entry(6, forked_at, 4, e.RetryScheduled("a", 2, 0, 1, forked_at + timedelta(seconds=9))))
    late = e.RetryScheduled("a", 3, 0, 2, forked_at + timedelta(seconds=10))
    with pytest.raises(AssertionError, match="due after its deadline"):
        promises.check_entry(e.Entry(7, forked_at, 6, late))


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (e.Entry(3, START, 1, ENTERED), "promise 8: entry 3 is in place 2 (seq 3)"),
        (e.Entry(2, START, 2, ENTERED), "promise 8: entry 2 is caused by 2, which is not before (seq 2)"),
        (e.Entry(2, START - timedelta(seconds=1), 1, ENTERED), "promise 8: time went back (seq 2)"),
    ],
)
def test_a_log_that_is_no_log_is_found(entry: e.Entry, sentence: str) -> None:
    promises = checked(STARTED)

    with pytest.raises(AssertionError) as caught:
        promises.check_entry(entry)

    assert str(caught.value).splitlines()[0] == sentence


def test_a_complaint_shows_the_facts_around_it() -> None:
    promises = checked(STARTED, ENTERED)

    with pytest.raises(AssertionError) as caught:
        promises.check_entry(e.Entry(3, START, 2, e.StepEntered("a", 2)))

    assert str(caught.value).splitlines()[1:] == [
        f"     1 <- 0    {STARTED}",
        f"     2 <- 1    {ENTERED}",
        f"     3 <- 2    {e.StepEntered('a', 2)}",
    ]


def test_every_fact_that_can_be_noted_has_a_promise_that_looks_at_it() -> None:
    looked_at = {kind for kinds in FACT_PROMISES.values() for kind in kinds}

    assert looked_at == set(e.FACTS)


# -- promises about the state ----------------------------------------------------------------------------------------


def running(*steps: Step) -> History:
    return History(workflow(*(steps or (step("a"),)))).start()


def outside(run: History, **more: Any) -> PendingWork:
    timers = {(timer.kind, timer.place, timer.number): timer.due for timer in run.timers}
    return PendingWork(**{"tasks": list(run.tasks.items()), "timers": timers, **more})


def waits_in_vain(state: State, world: PendingWork) -> str:
    with pytest.raises(AssertionError) as caught:
        promise_10_every_place_has_a_waker(state, world)
    return str(caught.value)


def test_a_history_that_was_told_well_keeps_every_promise() -> None:
    run = running(step("a", rules=retry(1)), step("b", needs=["a"])).fail("a").ok("a").ok("b")

    check(run.log, run.state)
    promise_10_every_place_has_a_waker(run.state, outside(run))
    promise_7_no_task_outlives_its_run(run.state, PendingWork())


def test_a_task_that_nobody_will_run_is_found() -> None:
    run = running()

    promise_10_every_place_has_a_waker(run.state, outside(run))

    assert waits_in_vain(run.state, PendingWork()) == (
        "promise 10: 'a' is ready (attempt 1, phase ''), and nothing will wake it"
    )


def test_a_delay_without_a_timer_is_found() -> None:
    run = running(step("a", rules=retry(1, delay=5))).fail("a")

    promise_10_every_place_has_a_waker(run.state, outside(run))

    assert waits_in_vain(run.state, outside(run, timers={})) == (
        "promise 10: 'a' is backing_off (attempt 1, phase ''), and nothing will wake it"
    )


def test_an_item_that_nobody_runs_is_found() -> None:
    run = History(workflow(step("m", map=Map(over=expression("list")), do=(command("x"),))), evaluator=_Lists()).start()

    promise_10_every_place_has_a_waker(run.state, outside(run))

    assert waits_in_vain(run.state, PendingWork()) == (
        "promise 10: 'm[0].0' is ready (attempt 1, phase ''), and nothing will wake it"
    )


def test_a_miscounted_run_is_found() -> None:
    run = running()
    run.state.run.active = 2

    assert waits_in_vain(run.state, outside(run)) == "promise 10: 2 steps are said to be active, and 1 are"


def test_a_run_at_rest_that_has_not_ended_is_found() -> None:
    run = running().ok("a")
    run.state.run.status = "running"

    assert waits_in_vain(run.state, outside(run)) == "promise 10: the run is at rest and has not ended"


def test_a_parked_step_waits_for_a_person_and_a_paused_run_for_its_resume() -> None:
    run = running().pause()

    promise_10_every_place_has_a_waker(run.state, outside(run))


def test_a_step_that_could_start_and_was_forgotten_is_found() -> None:
    run = running(step("a"), step("b", needs=["a"]))
    run.state.places["b"].open_needs = 0

    with pytest.raises(AssertionError) as caught:
        promise_10_no_step_is_forgotten(run.state, PendingWork())

    assert str(caught.value) == "promise 10: 'b' waits, and the answer is there: enter"


def test_a_step_that_has_not_ended_when_the_run_has_is_found() -> None:
    run = running().ok("a")
    run.state.places["a"].status = "running"

    with pytest.raises(AssertionError) as caught:
        promise_1_every_step_has_ended(run.state, PendingWork())

    assert str(caught.value) == "promise 1: the run has completed, and ['a'] have not ended"


def test_a_task_that_outlives_its_run_is_found() -> None:
    run = running().ok("a")

    with pytest.raises(AssertionError) as caught:
        promise_7_no_task_outlives_its_run(run.state, PendingWork(tasks=[("a", 1)]))

    assert str(caught.value) == "promise 7: the run has completed, and [('a', 1)] are still queued"


def test_a_log_that_is_not_what_it_was_when_read_back_is_found() -> None:
    pair = e.AttemptScheduled("a", 1, bindings={"V1": (1, 2)})

    with pytest.raises(AssertionError) as caught:
        promise_8_the_log_can_be_written_down([e.Entry(1, START, 0, pair)])

    assert str(caught.value).splitlines()[0] == "promise 8: entry 1 is"


def test_a_state_that_its_log_does_not_tell_is_found() -> None:
    run = running()
    run.state.run.reason = "made up"

    with pytest.raises(AssertionError, match=r"^promise 8: 'run' is\n") as caught:
        promise_8_the_log_replays(run.state, run.log)

    assert "made up" in str(caught.value)


def test_a_place_that_its_log_does_not_tell_is_named_alone() -> None:
    run = running(step("a"), step("b"))
    run.state.places["b"].host = "nowhere"

    with pytest.raises(AssertionError) as caught:
        promise_8_the_log_replays(run.state, run.log)

    assert "'b'" in str(caught.value)
    assert "'a'" not in str(caught.value)


def test_a_run_of_which_nothing_can_be_told_is_found() -> None:
    with pytest.raises(AssertionError) as caught:
        promise_10_a_run_has_a_story([])

    assert str(caught.value) == "promise 10: a run of 0 events has no story"


def test_a_secret_in_the_log_is_found_and_not_told_again() -> None:
    log = [e.Entry(1, START, 0, e.AttemptScheduled("a", 1, bindings={"V1": "hunter2"}))]

    with pytest.raises(AssertionError) as caught:
        promise_9_no_secret_is_logged(log, "hunter2")

    assert str(caught.value) == "promise 9: a secret is in the log (seq 1)\n  AttemptScheduled"


# -- what only a store shows -----------------------------------------------------------------------------------------


def complaint_of(promise: Callable[..., None], *about: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        promise(*about)
    return str(caught.value)


def test_a_task_that_is_queued_for_nobody_is_found() -> None:
    run = running(step("a"), step("b"))
    run.ok("a")

    promise_7_every_queued_task_has_a_place(run.state, [("b", 1)])

    assert complaint_of(promise_7_every_queued_task_has_a_place, run.state, [("a", 1)]) == (
        "promise 7: attempt 1 of 'a' is queued, and 'a' is completed at attempt 1"
    )
    assert complaint_of(promise_7_every_queued_task_has_a_place, run.state, [("b", 2)]) == (
        "promise 7: attempt 2 of 'b' is queued, and 'b' is ready at attempt 1"
    )
    assert complaint_of(promise_7_every_queued_task_has_a_place, run.state, [("a.script@2", 1)]) == (
        "promise 7: attempt 1 of 'a.script@2' is queued, and 'a.script@2' is gone"
    )


def test_tables_that_say_something_else_than_the_log_are_found() -> None:
    run, other = running(), running().pause()

    said = complaint_of(promise_8_the_tables_say_what_the_log_says, run.state, other.state)

    assert said.startswith("promise 8: 'run' is\n")


def test_a_line_that_says_something_else_than_the_log_is_found() -> None:
    run = running()
    seq = run.state.run.seq
    record = RunRecord(1, "w", "v", "completed", 1, seq, START, START)

    assert complaint_of(promise_8_the_line_says_what_the_log_says, run.state, record) == (
        f"promise 8: run 1 is listed as ('completed', 1, {seq}, False, ''), "
        f"and its log says ('running', 1, {seq}, False, '')"
    )


def test_a_fork_that_keeps_what_failed_is_found() -> None:
    original, forked = RunInvariants(WORKFLOW), RunInvariants(WORKFLOW)
    for seq, fact in enumerate((STARTED, ENTERED, e.StepCancelled("a", 1, "stopping")), start=1):
        original.check_entry(e.Entry(seq, START, 0, fact))
    entry = e.Entry(1, START, 0, e.RunStarted(2, "w", forked_from=1, kept=(Kept("a", "completed", None, ()),)))

    said = complaint_of(promise_8_a_fork_keeps_what_was_done, forked.facts, entry, original.facts)

    assert said.splitlines()[0] == "promise 8: the fork keeps 'a', which was cancelled (seq 1)"


def test_a_run_that_waits_for_nobody_is_found() -> None:
    promise_10_a_run_that_waits_says_for_what(running().pause().state)
    promise_10_a_run_that_waits_says_for_what(running().ok("a").state)

    assert complaint_of(promise_10_a_run_that_waits_says_for_what, running().state) == (
        "promise 10: run 1 is running and waits for nothing: ['a worker for attempt 1']"
    )


def test_a_run_that_was_paused_at_a_bug_is_found() -> None:
    run = running().pause()
    run.state.run.reason = "engine_error: KeyError: 'a'"

    assert complaint_of(promise_10_the_engine_has_met_no_bug, run.state) == (
        "promise 10: run 1 was paused because of a bug: engine_error: KeyError: 'a'"
    )


class _Lists:
    """Whatever is asked, the answer is a list of two."""

    evaluate: Callable[..., Any] = staticmethod(lambda expression, names: ["x", "y"])
    condition: Callable[..., bool] = staticmethod(lambda expression, names: True)
    render: Callable[..., Any] = staticmethod(lambda template, names: "text")
