"""Regularities that were put into generated runs are found, and nothing is found in noise."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from tests.support.histories import NOISY, PARKS, begun, decided, gather, in_rounds, learn, noise

from mulligan.analysis.suggest.changes import AddBreaker, AddRule, RemoveRule, SetLimit
from mulligan.analysis.suggest.evidence import ErrorKey, Evidence, Tried, definition
from mulligan.analysis.suggest.propose import Proposed, propose
from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.reports import Classified, RunRequested
from mulligan.core.model.workflow import Action, Handler, Resources, Rule, Template, Triage, Workflow, decode, encode
from mulligan.testing.history import History, command, edge, handler, retry, step, workflow

FETCH = workflow(step("fetch", triage=PARKS))
PARKS_WHEN_EXHAUSTED = Triage(when="exhausted")
MIB = 1024 * 1024


def only_change(found: Proposed) -> Any:
    (proposal,) = found.proposals
    return proposal.change


# -- retries ---------------------------------------------------------------------------------------------------------


def test_a_failure_that_people_retry_and_that_then_works_becomes_a_rule():
    runs = [decided(FETCH, number, works=number % 20 != 0) for number in range(41)]
    runs += [decided(FETCH, 100 + number, verdict="fail") for number in range(5)]

    (found,) = learn(FETCH, runs).proposals

    assert found.change == AddRule("fetch", 1, 240.0, exit_codes=(11,))
    assert found.evidence == (
        "'fetch' failed 49 times in 46 runs with exit code 11; people said retry 41 times, 38 of these worked, after a "
        "median of 4m00s"
    )
    assert found.proposal == "retry exit code 11 once, 4m after a failure"
    assert (found.counted.decided, found.counted.retried, found.counted.worked) == (46, 41, 38)
    assert found.counted.share_bound is not None and 0.5 < found.counted.share_bound < 38 / 41
    assert found.saving.decisions == 38


def test_the_number_of_retries_is_what_most_cases_took():
    runs = [decided(FETCH, number, retries=3 if number % 2 else 1, wait=20) for number in range(20)]

    assert only_change(learn(FETCH, runs)) == AddRule("fetch", 3, 30.0, exit_codes=(11,))


def test_another_round_of_a_failed_run_is_a_decision_too():
    plain = workflow(step("fetch"))

    (found,) = learn(plain, [in_rounds(plain, number) for number in range(12)]).proposals

    assert found.change == AddRule("fetch", 1, 60.0, exit_codes=(7,))
    assert (found.saving.decisions, found.saving.failed_runs) == (12, 12)


@pytest.mark.parametrize("runs", [1, 2, 4])
def test_few_runs_are_no_evidence_and_it_is_said_what_would_be(runs: int):
    found = learn(FETCH, [decided(FETCH, number) for number in range(runs)])

    assert found.proposals == []
    (nearly,) = found.nearly
    assert nearly.runs == runs
    assert nearly.needed == "a retry that works each time, in 6 runs; more runs if it works less often"
    assert learn(FETCH, [decided(FETCH, number) for number in range(6)]).proposals


def test_many_decisions_in_one_run_count_as_one():
    run = begun(FETCH, 0)
    for _ in range(30):
        run.fail("fetch", 11).wait(60).classify("fetch", "retry")
    run.ok("fetch")

    assert learn(FETCH, [run.log, run.log]).proposals == []


def test_a_retry_that_rarely_works_is_not_proposed():
    runs = [decided(FETCH, number, works=number % 3 == 0) for number in range(60)]

    assert learn(FETCH, runs).proposals == []


def test_what_people_mostly_let_fail_is_not_proposed():
    runs = [decided(FETCH, number) for number in range(20)]
    runs += [decided(FETCH, 50 + number, verdict="fail") for number in range(30)]

    assert learn(FETCH, runs).proposals == []


def test_a_default_that_nobody_decided_is_no_decision():
    timed = workflow(step("fetch", triage=Triage(timeout=60, default="fail")))
    runs = [begun(timed, number).fail("fetch", 11).wait(60).log for number in range(30)]

    assert gather(timed, runs).steps["fetch"].errors[ErrorKey("EXIT_NONZERO", 11)].decided()[1] == 0


def test_a_retry_with_more_memory_says_nothing_about_a_plain_retry():
    runs = []
    for number in range(20):
        run = begun(FETCH, number).fail("fetch", 11).wait(60)
        runs.append(run.classify("fetch", "retry", memory=2**30).ok("fetch").log)

    assert learn(FETCH, runs).proposals == []


def test_a_round_with_a_corrected_file_says_nothing_about_a_plain_retry():
    plain = workflow(step("fetch"))
    mended = workflow(step("fetch", action=Action("shell", {"text": "mended"})))
    runs = [begun(plain, number).fail("fetch", 7).wait(60).retry_with(mended).ok("fetch").log for number in range(20)]

    assert learn(mended, runs).proposals == []


def test_nothing_is_proposed_that_a_rule_of_the_file_already_covers():
    runs = [decided(FETCH, number) for number in range(20)]

    for rule in (Rule(exit_codes=(10, 11)), Rule(codes=("EXIT_NONZERO",)), Rule(any=True)):
        now = workflow(step("fetch", triage=PARKS, rules=(rule,)))
        assert propose([(gather(FETCH, runs), now)]).proposals == []


def test_nothing_is_proposed_for_a_step_that_is_gone():
    runs = [decided(FETCH, number) for number in range(20)]

    assert propose([(gather(FETCH, runs), workflow(step("other")))]).proposals == []


def test_a_fatal_failure_is_retried_by_its_code_alone():
    runs = []
    for number in range(20):
        run = begun(FETCH, number).fail("fetch", 0, code="HTTP_4XX", message="gone for now").wait(30)
        runs.append(run.classify("fetch", "retry").ok("fetch").log)

    assert only_change(learn(FETCH, runs)) == AddRule("fetch", 1, 30.0, codes=("HTTP_4XX",))


def test_a_vague_exit_code_is_matched_by_its_message():
    runs = [
        decided(FETCH, number, exit_code=1, message=f"lock on 10.0.0.{number} is held by worker {number}")
        for number in range(20)
    ]

    (found,) = learn(FETCH, runs).proposals

    assert found.change == AddRule("fetch", 1, 240.0, pattern="lock on .+ is held by worker")
    assert found.counted.message == "lock on <value> is held by worker <number>"


def test_messages_under_one_exit_code_that_behave_differently_are_told_apart():
    good = [decided(FETCH, number, message=f"no route to 10.0.0.{number}") for number in range(20)]
    bad = [
        decided(FETCH, 50 + number, message=f"row {number} has no valid date", verdict="fail") for number in range(20)
    ]

    assert only_change(learn(FETCH, good + bad)) == AddRule("fetch", 1, 240.0, pattern="no route to")


def test_an_exit_code_with_many_messages_that_all_behave_alike_is_one_rule():
    messages = ("no route to host", "connection was reset", "name cannot be resolved")
    runs = [decided(FETCH, number, exit_code=7, message=messages[number % 3]) for number in range(24)]

    assert only_change(learn(FETCH, runs)) == AddRule("fetch", 1, 240.0, exit_codes=(7,))


@pytest.mark.parametrize(("by", "proposed"), [("ada", 1), ("agent:claude", 0)])
def test_a_step_with_side_effects_is_retried_only_if_people_did_so(by: str, proposed: int):
    risky = workflow(step("fetch", triage=PARKS, on_lost="fail"))
    runs = []
    for number in range(20):
        run = begun(risky, number).fail("fetch", 11).wait(60)
        run.report(Classified(run.clock, "fetch", "retry", by, reason="seen before"))
        runs.append(run.ok("fetch").log)

    assert len(learn(risky, runs).proposals) == proposed
    assert len(learn(FETCH, runs).proposals) == 1


# -- what never helped -----------------------------------------------------------------------------------------------


def test_a_rule_that_never_helped_is_to_be_removed():
    rules = (Rule(codes=("TIMEOUT",)), *retry(2, delay=300))
    vain = workflow(step("fetch", rules=rules))
    runs = []
    for number in range(40):
        run = begun(vain, number)
        for _ in range(3):
            run.fail("fetch", 11).wait(300)
        runs.append(run.log)

    (found,) = learn(vain, runs).proposals

    assert (found.kind, found.change) == ("useless_rule", RemoveRule("fetch", 1))
    assert found.counted.tried == 40
    assert found.saving.seconds == 40 * 600


def test_a_rule_that_gave_up_too_early_gets_a_longer_delay_instead():
    short = workflow(step("fetch", triage=PARKS_WHEN_EXHAUSTED, rules=retry(1, delay=1)))
    runs = []
    for number in range(40):
        run = begun(short, number).fail("fetch", 11).wait(1).fail("fetch", 11).wait(600)
        runs.append(run.classify("fetch", "retry").ok("fetch").log)

    (found,) = learn(short, runs).proposals

    assert (found.kind, found.change) == ("useless_rule", None)
    assert found.proposal == "give it a longer delay: later retries that people decided worked 40 times"


def test_a_rule_that_helped_once_stays():
    some = workflow(step("fetch", rules=retry(1)))
    runs = [begun(some, number).fail("fetch").wait(0).fail("fetch").log for number in range(60)]
    runs.append(begun(some, 60).fail("fetch").wait(0).ok("fetch").log)

    assert learn(some, runs).proposals == []


def test_a_handler_that_never_worked_is_named():
    vain = workflow(step("fetch", on_failure=handler("mend")))
    runs = [begun(vain, number).fail("fetch").fail("fetch.on_failure@1.0").log for number in range(40)]

    (found,) = learn(vain, runs).proposals

    assert (found.kind, found.change, found.counted.tried) == ("useless_handler", None, 40)


def test_a_definition_is_recognized_after_it_was_stored():
    mends = command("mend", env={"B": Template(("1",)), "A": Template(("2",))})
    vain = workflow(step("fetch", rules=retry(1), on_failure=Handler((mends,))))
    runs = [
        begun(vain, number).fail("fetch").wait(0).fail("fetch").fail("fetch.on_failure@2.0").log for number in range(60)
    ]

    found = propose([(gather(decode(encode(vain)), runs), vain)])

    assert {one.kind for one in found.proposals} == {"useless_rule", "useless_handler"}


def test_a_handler_that_works_is_not_named():
    good = workflow(step("fetch", on_failure=handler("mend")))
    runs = [begun(good, number).fail("fetch").ok("fetch.on_failure@1.0").log for number in range(40)]

    assert learn(good, runs).proposals == []


@pytest.mark.parametrize(("works", "kinds"), [(False, ["useless_remediation"]), (True, [])])
def test_a_remediation_that_never_worked_is_named(works: bool, kinds: list[str]):
    routed = workflow(step("fetch", next=[edge("mend", "failure")]), step("mend"))
    runs = []
    for number in range(40):
        run = begun(routed, number).fail("fetch")
        runs.append((run.ok("mend") if works else run.fail("mend")).log)

    assert [one.kind for one in learn(routed, runs).proposals] == kinds


# -- limits ----------------------------------------------------------------------------------------------------------


def used(memory: int = 100, wall: float = 10.0, cpu: float = 9.0) -> dict[str, Any]:
    return {"peak_memory": memory * MIB, "wall_seconds": wall, "cpu_seconds": cpu}


def test_memory_that_ran_out_in_several_runs_is_raised():
    small = workflow(step("fetch", resources=Resources(memory=512 * MIB)))
    runs = [begun(small, number).ok("fetch", usage=used(400)).log for number in range(30)]
    runs += [begun(small, 30 + number).fail("fetch", is_out_of_memory=True, usage=used(511)).log for number in range(8)]

    (found,) = learn(small, runs).proposals

    assert found.change == SetLimit("fetch", "memory", 768 * MIB)
    assert (found.counted.runs, found.counted.failures) == (8, 8)


def test_a_failure_that_only_calls_itself_out_of_memory_raises_nothing():
    small = workflow(step("fetch", resources=Resources(memory=4096 * MIB)))
    runs = [begun(small, number).ok("fetch", usage=used(3000)).log for number in range(30)]
    runs += [begun(small, 30 + number).fail("fetch", is_out_of_memory=True, usage=used(90)).log for number in range(8)]

    assert learn(small, runs).proposals == []


def test_memory_that_no_run_ever_used_is_lowered():
    large = workflow(step("fetch", resources=Resources(memory=8192 * MIB)))

    few = [begun(large, number).ok("fetch", usage=used(300)).log for number in range(8)]
    many = [begun(large, number).ok("fetch", usage=used(300)).log for number in range(60)]

    assert learn(large, few).proposals == []
    assert only_change(learn(large, many)) == SetLimit("fetch", "memory", 384 * MIB)


def test_a_timeout_that_cut_off_work_is_raised():
    short = workflow(step("fetch", timeout=600.0))
    runs = [begun(short, number).ok("fetch", usage=used(wall=540, cpu=500)).log for number in range(30)]
    runs += [
        begun(short, 30 + number).fail("fetch", is_timed_out=True, usage=used(wall=600, cpu=580)).log
        for number in range(8)
    ]

    assert only_change(learn(short, runs)) == SetLimit("fetch", "timeout", 1200.0)


def test_a_step_that_hangs_until_a_long_timeout_gets_a_shorter_one():
    long = workflow(step("fetch", timeout=21600.0))
    runs = [begun(long, number).ok("fetch", usage=used(wall=120, cpu=100)).log for number in range(60)]
    runs += [
        begun(long, 60 + number).fail("fetch", is_timed_out=True, usage=used(wall=21600, cpu=2)).log
        for number in range(8)
    ]

    (found,) = learn(long, runs).proposals

    assert found.change == SetLimit("fetch", "timeout", 360.0)
    assert found.saving.seconds == 8 * (21600 - 360)


# -- breakers --------------------------------------------------------------------------------------------------------


def outage_runs(definition: Workflow, *, outages: int) -> list[list[e.Entry]]:
    """Twenty good runs, then eight that fail within two minutes, again and again."""
    runs, at = [], 0
    for _ in range(outages):
        for _ in range(20):
            at += 1800
            runs.append(_at(definition, at).ok("fetch").log)
        for _ in range(8):
            at += 15
            runs.append(_at(definition, at).fail("fetch", 0, code="CONNECTION", message="refused").log)
        at += 600
        runs.append(_at(definition, at).ok("fetch").log)
    return runs


def _at(definition: Workflow, seconds: int) -> Any:
    return begun(definition, 1, timedelta(seconds=seconds))


def test_a_service_that_goes_away_again_and_again_gets_a_breaker():
    plain = workflow(step("fetch"))

    (found,) = learn(plain, outage_runs(plain, outages=4)).proposals

    assert found.change == AddBreaker("fetch", "fetch", 5, 30.0)
    assert (found.counted.outages, found.counted.attempts_in_outages) == (4, 32)
    guarded = workflow(step("fetch", breaker="api"))
    assert learn(guarded, outage_runs(guarded, outages=4)).proposals == []


def test_one_bad_night_is_no_regularity():
    plain = workflow(step("fetch"))

    assert learn(plain, outage_runs(plain, outages=1)).proposals == []


# -- all together, and noise -----------------------------------------------------------------------------------------


def test_every_regularity_of_a_history_is_found_and_what_saves_most_comes_first():
    definition_ = workflow(
        step("fetch", triage=PARKS),
        step("load", rules=retry(1, delay=60), on_failure=handler("mend"), continue_on_error=True),
        step("train", resources=Resources(memory=512 * MIB), triage=PARKS),
    )
    runs = []
    for number in range(80):
        run = begun(definition_, number)
        run.fail("fetch", 11).wait(240).classify("fetch", "retry").ok("fetch")
        run.fail("load", 3).wait(60).fail("load", 3).fail("load.on_failure@2.0", 4)
        if number % 4 == 0:
            run.fail("train", is_out_of_memory=True, usage=used(512)).wait(60)
            run.classify("train", "retry", memory=1024 * MIB).ok("train", usage=used(700))
        else:
            run.ok("train", usage=used(400))
        runs.append(run.log)

    found = learn(definition_, runs)

    assert [(one.kind, one.step) for one in found.proposals] == [
        ("retry", "fetch"),
        ("useless_rule", "load"),
        ("memory", "train"),
        ("useless_handler", "load"),
    ]
    savings = [(one.saving.decisions, one.saving.failed_runs, one.saving.seconds) for one in found.proposals]
    assert savings == sorted(savings, reverse=True)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_proposed_from_noise(seed: int):
    found = learn(NOISY, noise(seed, 50))

    assert found.questions > 20
    assert found.proposals == []


def test_hardly_anything_is_proposed_from_many_noisy_histories():
    """With the error rate of `statistics.ERROR_RATE`, less than one of these is expected to be wrong."""
    dice = random.Random(7)
    noisy = workflow(
        *(step(f"step{number}", triage=PARKS) for number in range(8)),
        step("vain", rules=(Rule(any=True),), on_failure=handler("mend")),
    )

    answers = [propose([(thrown(dice, noisy), noisy)]) for _ in range(80)]

    assert [one.proposals for one in answers if one.proposals] == []
    assert min(one.questions for one in answers) >= 18


def thrown(dice: random.Random, noisy: Workflow) -> Evidence:
    """Counts as they come from runs in which every decision and every outcome is thrown by a coin."""
    evidence = Evidence(noisy.name)
    runs = dice.randint(3, 60)
    for number in range(8):
        for exit_code in (7, 11):
            example = failure("EXIT_NONZERO", "", exit_code=exit_code)
            for count in evidence.step(f"step{number}").counts(example):
                count.example = example
                for run_id in range(runs):
                    one = count.run(run_id)
                    one.retried = dice.randint(0, 1)
                    one.let_fail, one.worked = 1 - one.retried, one.retried and dice.randint(0, 1)
    vain, of_step = noisy.steps[-1], evidence.step("vain")
    assert vain.on_failure is not None
    for found in (
        of_step.rules.setdefault(definition(vain.rules[0]), Tried()),
        of_step.handlers.setdefault(definition(vain.on_failure), Tried()),
    ):
        for run_id in range(runs):
            found.add(run_id, worked=dice.random() < 0.3, seconds=1.0)
    return evidence


def test_a_run_that_was_forked_at_an_event_is_no_evidence_since_its_log_repeats_another_run() -> None:
    definition = workflow(step("fetch", triage=PARKS))
    run = begun(definition, 1).fail("fetch")
    fork = History(definition)
    fork.clock = run.clock
    kept = pack_history(run.log)
    fork.report(RunRequested(fork.clock, 2, history=kept, forked_from=1, forked_at=len(run.log), uid="new"))

    found = gather(definition, [fork.log, run.log])

    assert (found.runs, found.failures) == (1, 1)


def raised(number: int, *classes: str, verdict: str = "retry") -> list[e.Entry]:
    """A run in which a step raises an exception, and people retry it, which works, or let it fail."""
    run = begun(FETCH, number).fail("fetch", None, code="EXCEPTION", message=f"E: {number}", exceptions=classes)
    run.wait(20).classify("fetch", verdict)
    return (run.ok("fetch") if verdict == "retry" else run).log


def test_an_exception_that_people_retry_becomes_a_rule_for_its_class():
    runs = [raised(number, "httpx.ReadTimeout", "httpx.HTTPError", "Exception") for number in range(20)]
    runs += [raised(100 + number, "sales.Broken", "Exception", verdict="fail") for number in range(20)]

    (found,) = learn(FETCH, runs).proposals

    assert found.change == AddRule("fetch", 1, 30.0, exceptions=("httpx.ReadTimeout",))
    assert "in 20 runs with httpx.ReadTimeout; " in found.evidence
    assert found.proposal == "retry httpx.ReadTimeout once, 30s after a failure"


def test_a_class_that_means_anything_is_no_condition():
    runs = [raised(number, "ValueError", "Exception") for number in range(20)]

    assert not learn(FETCH, runs).proposals
