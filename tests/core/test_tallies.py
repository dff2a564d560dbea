"""How often each rung was tried, how often it worked, how long it took: from facts alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from tests.support.nightly import sample

from mulligan.core.effects.snapshot import changes, restore
from mulligan.core.evolve.tallies import parse_tally_key, tally_key
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Backoff, Command, Handler, Map, Rule, Triage
from mulligan.core.state.state import Tally
from mulligan.core.turn import fold, turn
from mulligan.testing.history import History, command, edge, expression, handler, retry, shell, step, workflow
from proof.simulator.simulation import Simulation


def run_of(*, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    """A run of one step."""
    return History(workflow(step("a", **fields)), answers).start()


def sent(*steps: Any, **fields: Any) -> History:
    """A run whose step `a` has failed, and was sent to `fix` ten seconds ago."""
    source = step("a", next=[edge("fix", "failure", **fields)])
    return History(workflow(source, *steps)).start().fail("a").wait(10)


# -- retry -----------------------------------------------------------------------------------------------------------


def test_a_run_in_which_nothing_fails_counts_nothing():
    run = run_of(rules=retry(2), on_failure=handler()).ok("a")

    assert (run.status, run.state.tallies) == ("completed", {})


def test_a_retry_that_works_took_from_its_reservation_to_the_end_of_the_attempt():
    run = run_of(rules=retry(2, delay=4)).wait(100).fail("a").wait(4).wait(3).ok("a")

    assert run.state.tallies == {"a:retry:0": Tally(tried=1, worked=1, judged=1, seconds=7.0)}


def test_each_rule_is_counted_for_itself_and_a_retry_that_fails_did_not_work():
    rules = (Rule(exit_codes=(7,)), Rule(any=True))
    run = run_of(rules=rules).fail("a", 7).wait(1).fail("a", 7).wait(2).fail("a", 1).wait(5).ok("a")

    assert run.state.tallies == {
        "a:retry:0": Tally(tried=2, worked=0, judged=2, seconds=3.0),
        "a:retry:1": Tally(tried=1, worked=1, judged=1, seconds=5.0),
    }


def test_a_retry_that_is_under_way_is_tried_and_not_judged_yet():
    run = run_of(rules=retry(2)).fail("a")

    assert run.state.tallies == {"a:retry:0": Tally(tried=1)}


def test_a_lost_worker_does_not_speak_against_the_retry():
    run = run_of(rules=retry(1)).fail("a").wait(2).lose("a").wait(2).ok("a")

    assert run.state.tallies == {"a:retry:0": Tally(tried=1, worked=1, judged=1, seconds=4.0)}


def test_a_retry_whose_result_is_not_accepted_did_not_work():
    run = run_of(rules=retry(1), validate=expression("good", "output"), answers={"good": False}).fail("a").ok("a")

    assert run.status == "failed"
    assert run.state.tallies == {"a:retry:0": Tally(tried=1, judged=1)}


def test_a_reserved_retry_that_is_void_because_the_run_stops_was_tried_and_did_not_work():
    run = run_of(rules=retry(1, delay=60)).fail("a").wait(5).cancel()

    assert run.status == "cancelled"
    assert run.state.tallies == {"a:retry:0": Tally(tried=1, judged=1, seconds=5.0)}


@pytest.mark.parametrize("works", [True, False])
def test_a_recovery_script_is_counted_beside_the_retry_it_runs_for(works: bool):
    run = run_of(rules=retry(1, recovery_script=command("mend"))).fail("a").wait(3)

    (run.ok if works else run.fail)("a.script@1").wait(2).ok("a")

    assert run.state.tallies == {
        "a:retry:0": Tally(tried=1, worked=1, judged=1, seconds=5.0),
        "a:script:0": Tally(tried=1, worked=works, judged=1, seconds=3.0),
    }


# -- handle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["recovery", "fallback"])
def test_a_handler_that_completes_the_step_has_worked(strategy: str):
    run = run_of(on_failure=handler("one", "two", strategy=strategy)).fail("a").wait(1)

    run.ok("a.on_failure@1.0").wait(2).ok("a.on_failure@1.1")

    assert run.state.tallies == {f"a:handle:{strategy}": Tally(tried=1, worked=1, judged=1, seconds=3.0)}


def test_a_handler_that_fails_did_not_work():
    run = run_of(on_failure=handler()).fail("a").wait(1).fail("a.on_failure@1.0")

    assert run.state.tallies == {"a:handle:recovery": Tally(tried=1, judged=1, seconds=1.0)}


def test_a_cleanup_works_when_its_commands_do_although_the_step_has_failed():
    run = run_of(on_failure=handler(strategy="cleanup")).fail("a").wait(1).ok("a.on_failure@1.0")

    assert run.status == "failed"
    assert run.state.tallies == {"a:handle:cleanup": Tally(tried=1, worked=1, judged=1, seconds=1.0)}


@pytest.mark.parametrize(("said", "worked"), [("completed", 1), ("failed", 0)])
def test_a_custom_handler_works_when_it_says_that_the_step_is_completed(said: str, worked: int):
    run = run_of(on_failure=handler(strategy="custom")).fail("a").ok("a.on_failure@1.0", output={"status": said})

    assert run.state.tallies == {"a:handle:custom": Tally(tried=1, worked=worked, judged=1)}


def test_a_handler_with_reruns_is_judged_by_the_run_after_it():
    run = run_of(on_failure=handler(rerun=2)).fail("a").wait(1).ok("a.on_failure@1.0").wait(2).fail("a")

    run.wait(4).ok("a.on_failure@2.0").wait(8).ok("a")

    assert run.status == "completed"
    assert run.state.tallies == {"a:handle:recovery": Tally(tried=2, worked=1, judged=2, seconds=15.0)}


def test_a_handler_that_is_cut_off_by_stopping_was_tried_and_did_not_work():
    run = run_of(on_failure=handler()).fail("a").started("a.on_failure@1.0").wait(1).cancel()

    run.fail("a.on_failure@1.0", signal=15)

    assert run.status == "cancelled"
    assert run.state.tallies == {"a:handle:recovery": Tally(tried=1, judged=1, seconds=1.0)}


def test_a_cleanup_of_a_reserved_retry_ends_what_the_retry_was_to_do():
    run = run_of(rules=retry(1, delay=60), on_failure=handler(strategy="cleanup")).fail("a").wait(5).cancel()

    run.wait(2).ok("a.on_failure@1.0")

    assert run.state.tallies == {
        "a:retry:0": Tally(tried=1, judged=1, seconds=5.0),
        "a:handle:cleanup": Tally(tried=1, worked=1, judged=1, seconds=2.0),
    }


def test_a_command_of_a_handler_has_retries_and_handlers_of_its_own():
    inner = Command(action=shell("x"), rules=retry(1), on_failure=handler("y"))
    run = run_of(on_failure=Handler((inner,))).fail("a")

    run.fail("a.on_failure@1.0").fail("a.on_failure@1.0").ok("a.on_failure@1.0.on_failure@2.0")

    assert run.status == "completed"
    assert run.state.tallies == {
        "a:handle:recovery": Tally(tried=1, worked=1, judged=1),
        "a.on_failure.0:retry:0": Tally(tried=1, judged=1),
        "a.on_failure.0:handle:recovery": Tally(tried=1, worked=1, judged=1),
    }


def test_the_items_of_a_map_are_counted_together_under_their_step():
    do = (Command(action=shell("x"), on_failure=handler()),)
    one = step("m", map=Map(over=expression("all"), on_item_failure="collect"), do=do)
    run = History(workflow(one), {"all": [1, 2, 3]}).start().fail("m[0].0").fail("m[2].0").ok("m[1].0").wait(1)

    run.ok("m[0].0.on_failure@1.0").fail("m[2].0.on_failure@1.0")

    assert run.status == "completed"
    assert run.state.tallies == {"m.0:handle:recovery": Tally(tried=2, worked=1, judged=2, seconds=2.0)}


# -- triage ----------------------------------------------------------------------------------------------------------


def parked(**fields: Any) -> History:
    """A run whose step has been parked for an hour."""
    return run_of(triage=Triage(**fields)).fail("a").wait(3600)


def test_triage_works_when_the_retry_that_was_decided_on_completes_the_step():
    run = parked().classify("a", "retry").wait(5).ok("a")

    # It took as long as somebody was waited for.
    assert run.state.tallies == {"a:triage:": Tally(tried=1, worked=1, judged=1, seconds=3600.0)}


def test_triage_did_not_work_when_the_retry_that_was_decided_on_fails():
    run = parked().classify("a", "retry").wait(5).fail("a").wait(30).classify("a", "fail")

    assert run.status == "failed"
    assert run.state.tallies == {"a:triage:": Tally(tried=2, judged=2, seconds=3630.0)}


def test_a_default_that_applies_because_nobody_came_is_counted_like_a_decision():
    run = run_of(triage=Triage(timeout=60, default="retry")).fail("a").wait(100).ok("a")

    assert run.state.tallies == {"a:triage:": Tally(tried=1, worked=1, judged=1, seconds=60.0)}


def test_a_parked_step_that_is_cancelled_was_parked_in_vain():
    run = parked().cancel()

    assert run.state.tallies == {"a:triage:": Tally(tried=1, judged=1, seconds=3600.0)}


# -- route -----------------------------------------------------------------------------------------------------------


def test_a_route_works_when_the_visit_it_leads_to_completes():
    run = sent(step("fix")).ok("fix")

    assert run.state.tallies == {"a:route:fix": Tally(tried=1, worked=1, judged=1, seconds=10.0)}


def test_a_route_did_not_work_when_the_visit_it_leads_to_fails():
    run = sent(step("fix")).fail("fix")

    assert run.state.tallies == {"a:route:fix": Tally(tried=1, judged=1, seconds=10.0)}


@pytest.mark.parametrize("works", [True, False])
def test_a_remediation_that_fails_and_is_handled_in_turn_has_worked_when_that_one_completes(works: bool):
    run = sent(step("fix", next=[edge("more", "failure")]), step("more")).fail("fix").wait(5)

    (run.ok if works else run.fail)("more")

    assert run.state.tallies == {
        "a:route:fix": Tally(tried=1, worked=works, judged=1, seconds=15.0),
        "fix:route:more": Tally(tried=1, worked=works, judged=1, seconds=5.0),
    }


def test_a_remediation_that_may_fail_handles_nothing_by_failing():
    fix = step("fix", continue_on_error=True, next=[edge("more", "failure")])
    run = sent(fix, step("more")).fail("fix").wait(5).ok("more")

    assert run.state.tallies == {
        "a:route:fix": Tally(tried=1, judged=1, seconds=10.0),
        "fix:route:more": Tally(tried=1, worked=1, judged=1, seconds=5.0),
    }


def test_every_time_round_a_repair_is_a_route_of_its_own():
    run = sent(step("fix"), then="rerun").ok("fix").fail("a").wait(2).ok("fix").ok("a")

    assert run.status == "completed"
    assert run.state.tallies == {"a:route:fix": Tally(tried=2, worked=2, judged=2, seconds=12.0)}


def test_a_route_whose_remediation_never_starts_was_tried_and_did_not_work():
    run = sent(step("slow"), step("fix", needs=["slow"])).cancel().wait(10)

    assert run["fix"].status == "cancelled"
    assert run.state.tallies == {"a:route:fix": Tally(tried=1)}


def test_a_remediation_that_is_cancelled_did_not_work():
    run = sent(step("fix")).started("fix").cancel().fail("fix", signal=15)

    assert run["fix"].status == "cancelled"
    assert run.state.tallies == {"a:route:fix": Tally(tried=1, judged=1, seconds=10.0)}


def test_an_edge_to_end_and_an_alert_send_a_failure_nowhere():
    edges = [edge("bell", "failure", handles=False), edge("end", "failure")]
    run = History(workflow(step("a", next=edges), step("bell"))).start().fail("a").ok("bell")

    assert run.status == "failed"
    assert run.state.tallies == {}


def test_a_visit_in_a_later_round_does_not_change_what_the_first_one_came_to():
    run = sent(step("fix")).fail("fix").retry().wait(10)

    run.ok("a")

    assert run.state.tallies == {"a:route:fix": Tally(tried=1, judged=1, seconds=10.0)}


# -- names, rows, replays --------------------------------------------------------------------------------------------


def test_a_tally_is_named_after_the_definition_and_not_after_items_and_attempts():
    key = tally_key("check[12].0.on_failure@3.1", "retry", 2)

    assert key == "check.0.on_failure.1:retry:2"
    assert parse_tally_key(key) == ("check", ("0", "on_failure", "1"), "retry", "2")
    assert parse_tally_key(tally_key("build-it", "triage")) == ("build-it", (), "triage", "")


def test_a_turn_writes_the_tallies_that_it_changed_and_a_turn_that_is_taken_back_counts_nothing():
    run = run_of(rules=(Rule(exit_codes=(7,)), Rule(any=True, backoff=Backoff(delay=1)))).fail("a", 7)
    before = dict(run.state.tallies)

    turn(run.state, r.TaskEnded(run.clock, "a", 2, Outcome(1)), run.evaluator)
    rows = changes(run.state)
    run.state.rollback()

    assert sorted(row[1] for row in rows if row[0] == "tallies") == ["a:retry:0", "a:retry:1"]
    assert run.state.tallies == before


def test_a_state_from_its_rows_goes_on_counting_where_it_was():
    run = History(workflow(step("a", rules=retry(1))))
    rows = []
    for report in (r.RunRequested(run.clock, run_id=1), r.TaskEnded(run.clock, "a", 1, Outcome(1))):
        turn(run.state, report, run.evaluator)
        rows += changes(run.state)
        run.state.commit()

    run.state = restore(run.state.workflow, rows)
    run.wait(9).ok("a")

    assert run.state.tallies == {"a:retry:0": Tally(tried=1, worked=1, judged=1, seconds=9.0)}


# -- what the log says, counted the slow way -------------------------------------------------------------------------

Log = Sequence[e.Entry]
_ENDS = (e.StepCompleted, e.StepFailed, e.StepCancelled, e.CommandCompleted, e.CommandFailed, e.CommandCancelled)
_GOOD = (e.StepCompleted, e.CommandCompleted)
_NEXT = (*_ENDS, e.AttemptFailed, e.ResultRejected, e.RetryScheduled, e.HandlerStarted, e.HandlerFailed, e.StepParked)


def about(fact: Any) -> str:
    return getattr(fact, "place", "") or getattr(fact, "step", "")


def first(log: Log, place: str, fits: Callable[[Any], bool]) -> e.Entry | None:
    return next((entry for entry in log if about(entry.fact) == place and fits(entry.fact)), None)


def judge(log: Log, place: str, since: datetime, decides: Callable[[Any], bool | None]) -> Tally:
    """By the first fact about the place on which `decides` has an opinion."""
    found = first(log, place, lambda fact: decides(fact) is not None)
    if found is None:
        return Tally(tried=1)
    return Tally(1, int(bool(decides(found.fact))), 1, (found.at - since).total_seconds())


def by_next(fact: Any) -> bool | None:
    return isinstance(fact, _GOOD) if isinstance(fact, _NEXT) else None


def by_end(fact: Any) -> bool | None:
    return isinstance(fact, _GOOD) if isinstance(fact, _ENDS) else None


def by_handler(fact: Any) -> bool | None:
    if isinstance(fact, e.HandlerSucceeded) and fact.strategy in ("cleanup", "custom"):
        if fact.strategy == "cleanup":
            return True
        return None if fact.output["status"] == "completed" else False
    return by_next(fact)


def triaged(log: Log, fact: e.StepParked, since: datetime) -> Tally:
    over = (e.StepClassified, *_ENDS)
    waited = judge(log, fact.step, since, lambda f: False if isinstance(f, over) else None)
    said = first(log, fact.step, lambda f: isinstance(f, over))
    if said is None or not isinstance(said.fact, e.StepClassified) or said.fact.verdict == "fail":
        return waited
    after = judge([entry for entry in log if entry.seq > said.seq], fact.step, since, by_next)
    return Tally(1, after.worked, waited.judged, waited.seconds)


def is_sent(fact: e.StepFailed) -> bool:
    return fact.route.status == "selected" and fact.route.to != "end"


def routed(log: Log, fact: e.StepFailed, since: datetime) -> Tally:
    """Along the chain of remediations, to the first that completes or is the last."""
    chain: e.StepFailed = fact
    chained: list[str] = []
    while True:
        chained.append(chain.step)
        target, visit = chain.route.to, chain.route.visit
        end = first(
            log,
            str(target),
            lambda f, visit=visit: isinstance(f, _ENDS) and getattr(f, "visit", None) == visit,
        )
        if end is None or is_closed(log[: log.index(end)], chained):
            return Tally(tried=1)
        if isinstance(end.fact, e.StepFailed) and is_sent(end.fact) and not end.fact.is_allowed:
            log, chain = log[log.index(end) + 1 :], end.fact
            continue
        return Tally(1, int(isinstance(end.fact, e.StepCompleted)), 1, (end.at - since).total_seconds())


def is_closed(log: Log, steps: list[str]) -> bool:
    """Whether a later round gave one of the steps another chance meanwhile."""
    return any(isinstance(entry.fact, e.RunReopened) and set(steps) & set(entry.fact.put_back) for entry in log)


def counted(log: Log) -> dict[str, Tally]:
    """The tallies of a log: for each thing that was tried, look ahead to what came of it."""
    found: dict[str, Tally] = {}

    def add(key: str, tally: Tally) -> None:
        found[key] = found.get(key, Tally()) + tally

    for number, entry in enumerate(log, start=1):
        fact, later = entry.fact, log[number:]
        match fact:
            case e.RetryScheduled():
                add(tally_key(fact.place, "retry", fact.rule), judge(later, fact.place, entry.at, by_next))
            case e.HandlerStarted():
                add(tally_key(fact.place, "handle", fact.strategy), judge(later, fact.place, entry.at, by_handler))
            case e.StepParked():
                add(tally_key(fact.step, "triage"), triaged(later, fact, entry.at))
            case e.StepFailed() if is_sent(fact):
                add(tally_key(fact.step, "route", str(fact.route.to)), routed(later, fact, entry.at))
            case e.CommandEntered(role="script"):
                add(tally_key(fact.parent, "script", fact.index), judge(later, fact.place, entry.at, by_end))
            case e.TriageSuggested(verdict=None):
                add(tally_key(fact.step, "unanswered", fact.agent), Tally(tried=1))
            case e.TriageSuggested():
                add(tally_key(fact.step, "suggested", fact.agent), followed(later, fact))
            case e.StepClassified() if fact.by.startswith("agent:"):
                agent = fact.by.removeprefix("agent:")
                is_overruled = fact.verdict == "fail" and was_run_again(later, fact)
                add(tally_key(fact.step, "triager", agent), of_agent(later, fact, entry.at, is_overruled))
                if is_overruled:
                    add(tally_key(fact.step, "overruled", agent), Tally(tried=1))
    return found


def followed(log: Log, fact: e.TriageSuggested) -> Tally:
    """Whether a person decided as the agent had suggested."""
    over = (e.StepClassified, *_ENDS)
    said = first(log, fact.step, lambda f: isinstance(f, over))
    if said is None or not isinstance(said.fact, e.StepClassified) or said.fact.is_default:
        return Tally(tried=1)
    return Tally(1, int(said.fact.verdict == fact.verdict), 1)


def of_agent(log: Log, fact: e.StepClassified, since: datetime, is_overruled: bool) -> Tally:
    """A retry is judged by its attempt, `fail` by whether somebody ran the step again."""
    if fact.verdict == "fail":
        return Tally(1, int(not is_overruled), 1)
    after = judge(log, fact.step, since, by_next)
    return Tally(1, after.worked, after.judged)


def was_run_again(log: Log, fact: e.StepClassified) -> bool:
    """Whether another round runs the step, which has failed as the agent said and was not visited since."""
    for entry in log:
        if isinstance(entry.fact, e.RunReopened):
            return fact.step in entry.fact.put_back
        if isinstance(entry.fact, e.AttemptScheduled | e.StepEntered) and _place(entry.fact) == fact.step:
            return False
    return False


def _place(fact: Any) -> str:
    return str(getattr(fact, "place", None) or getattr(fact, "step", ""))


# The first has suggestions, decisions and overruled decisions of agents, which few tests count.
@pytest.mark.parametrize("chunk", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in (1, 2, 3))])
def test_the_tallies_are_what_the_log_says(chunk: int):
    for seed in sample(range(chunk * 25, (chunk + 1) * 25), 9):
        simulation = Simulation(seed).run()
        log = simulation.log

        tallies = fold(simulation.workflow, log).tallies

        assert approximate(tallies) == approximate(counted(log)), f"seed {seed}"
        assert all(0 <= tally.worked <= tally.tried >= tally.judged for tally in tallies.values())


def approximate(tallies: dict[str, Tally]) -> dict[str, tuple[int, int, int, float]]:
    """Seconds are added up in another order here."""
    return {key: (one.tried, one.worked, one.judged, round(one.seconds, 6)) for key, one in sorted(tallies.items())}
