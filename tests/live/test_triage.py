"""Triage with real commands on both stores: what is parked, what is said of it, and that the attempt gets it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.support.runner import Live, Terminal

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Adjusted
from mulligan.errors import MulliganError, StepNotParked
from mulligan.service.decisions.decisions import Decision
from mulligan.service.rendering.json_output import to_json
from mulligan.service.service import Service

PARKED = """\
name: parked
steps:
  - {step: simulate, shell: "test -e fixed || { echo diverged >&2; exit 42; }", triage: true}
  - {step: publish, needs: [simulate], shell: echo published}
"""


def refusal(service: Service, *words: Any, **fields: Any) -> tuple[str, str]:
    with pytest.raises(StepNotParked) as caught:
        service.changes.classify(*words, **fields)
    return caught.value.message, caught.value.hint


# -- what waits ------------------------------------------------------------------------------------------------------


def test_what_is_parked_is_found_with_what_became_of_it_in_other_runs(live: Live) -> None:
    first = live.run(PARKED)
    live.service.changes.classify(first.run_id, "simulate", "fail", "the mesh is broken")
    second = live.run(PARKED)

    (found,) = to_json(live.service.decisions.list_pending())

    assert (first.exit_code, second.exit_code) == (4, 4)
    assert (found["run_id"], found["step"], found["parked_for"]) == (second.run_id, "simulate", "unmatched")
    assert (found["failure"]["exit_code"], found["failure"]["message"]) == (42, "diverged")
    assert found["since"] == second.entries(e.StepParked)[0].at.isoformat()
    (earlier,) = found["earlier"]
    assert (earlier["run_id"], earlier["status"]) == (first.run_id, "failed")
    assert earlier["ruling"]["reason"] == "the mesh is broken"


def test_a_parked_child_makes_its_parent_wait_and_is_found_with_it(live: Live) -> None:
    live.write("inner.yaml", PARKED)
    ran = live.run("name: outer\nsteps:\n  - {step: inner, workflow: inner.yaml}\n")
    (found,) = to_json(live.service.decisions.list_pending())
    live.write("fixed")

    live.service.changes.classify(found["run_id"], "simulate", "retry", "mesh repaired")
    after = live.resume(ran.run_id)

    assert (ran.exit_code, ran.steps["inner"]["status"]) == (4, "running")
    assert (found["parent_run_id"], found["root_run_id"]) == (ran.run_id, ran.run_id)
    assert (after.status, live.children(ran.run_id)[0].status) == ("completed", "completed")


# -- the word reaches the attempt ------------------------------------------------------------------------------------


def test_a_retry_with_more_time_has_it(live: Live) -> None:
    """It takes longer than the workflow gives it, and not longer than was said."""
    ran = live.run("name: slow\nsteps:\n  - {step: a, shell: sleep 0.6, timeout: 100ms, triage: true}\n")
    assert ran.steps["a"]["failure"]["code"] == "TIMEOUT"

    live.service.changes.classify(ran.run_id, "a", "retry", "the disk was slow", timeout=60.0)
    after = live.resume(ran.run_id)

    assert (after.status, after.steps["a"]["attempts"]) == ("completed", 2)
    assert after.facts(e.AttemptScheduled, place="a", attempt=2)[0].adjusted == Adjusted(timeout=60.0)


def test_a_retry_with_less_time_has_no_more(live: Live) -> None:
    ran = live.run('name: hangs\nsteps:\n  - {step: a, shell: "test ! -e hang || sleep 1000; exit 42", triage: true}\n')
    live.write("hang")

    live.service.changes.classify(ran.run_id, "a", "retry", "once more, and briefly", timeout=0.2)
    after = live.resume(ran.run_id)

    assert (after.exit_code, after.steps["a"]["attempts"]) == (4, 2)
    assert after.steps["a"]["failure"]["code"] == "TIMEOUT"


HUNGRY = """\
name: hungry
steps:
  - step: a
    shell: |
      test -e eat || exit 42
      exec python3 -c 'import time; held = b"x" * (200 << 20); time.sleep(1000)'
    triage: true
"""


def test_a_retry_with_other_memory_has_that(live: Live) -> None:
    ran = live.run(HUNGRY)
    live.write("eat")

    live.service.changes.classify(ran.run_id, "a", "retry", "it should do with little", memory=100 << 20)
    after = live.resume(ran.run_id)

    assert after.steps["a"]["failure"]["code"] == "OUT_OF_MEMORY"


# -- late, twice, at the wrong time ----------------------------------------------------------------------------------


def test_the_second_word_is_refused_and_told_the_first(live: Live) -> None:
    ran = live.run(PARKED)
    live.service.changes.by = "ann"
    live.service.changes.classify(ran.run_id, "simulate", "fail", "hopeless")

    assert refusal(live.service, ran.run_id, "simulate", "retry", "x") == (
        "step 'simulate' is failed, so there is nothing to classify",
        "already classified as fail by ann: hopeless",
    )
    assert live.look(ran.run_id).facts(e.StepClassified)[0].by == "ann"


def test_of_two_who_decide_at_the_same_moment_one_counts(live: Live) -> None:
    ran = live.run(PARKED)
    said: list[MulliganError | None] = []

    def decide_as(name: str) -> None:
        service = Service(live.home, name)
        [one] = service.changes.decide([Decision(ran.run_id, "simulate", "fail", f"{name} says so")]).decisions
        said.append(one.error)
        service.close()

    both = [threading.Thread(target=decide_as, args=(name,)) for name in ("ann", "bo")]
    for one in both:
        one.start()
    for one in both:
        one.join()

    assert sorted(type(error) for error in said if error) == [StepNotParked]
    assert len(said) == 2
    assert len(live.look(ran.run_id).facts(e.StepClassified)) == 1


def test_what_is_decided_while_the_run_is_driven_is_taken_by_whoever_drives_it(live: Live) -> None:
    def decide_it(there: Terminal) -> None:
        there.wait_for(e.StepParked, step="simulate")
        (there.folder / "fixed").touch()
        there.service.changes.classify(there.run_id, "simulate", "retry", "fixed meanwhile")
        there.wait_for(e.StepCompleted, step="simulate")
        (there.folder / "go").touch()

    hold = "  - {step: hold, shell: 'until [ -e go ]; do sleep 0.01; done'}\n"
    ran = live.run(PARKED + hold, meanwhile=decide_it)

    assert (ran.status, ran.steps["simulate"]["attempts"]) == ("completed", 2)


def test_a_word_on_a_run_that_stops_comes_too_late(live: Live) -> None:
    said = []

    def decide_it(there: Terminal) -> None:
        there.wait_for(e.StepParked, step="simulate")
        there.wait_until((there.folder / "held").exists)
        there.service.changes.cancel(there.run_id)
        said.append(refusal(there.service, there.run_id, "simulate", "retry", "x"))
        (there.folder / "go").touch()

    hold = """  - {step: hold, shell: "trap '' TERM; touch held; until [ -e go ]; do sleep 0.01; done"}\n"""
    ran = live.run(PARKED + hold, meanwhile=decide_it)

    assert said == [("step 'simulate' is cancelled, so there is nothing to classify", "")]
    assert (ran.status, ran.steps["simulate"]["attempts"]) == ("cancelled", 1)


def test_where_nobody_comes_the_default_applies_and_a_word_after_it_is_too_late(live: Live) -> None:
    text = PARKED.replace("triage: true", "triage: {timeout: 10ms, default: retry}")

    ran = live.run(text, wait_seconds=60.0)

    # A retry by default is given once: then it has failed.
    assert [(fact.verdict, fact.by) for fact in ran.facts(e.StepClassified)] == [
        ("retry", "timeout"),
        ("fail", "timeout"),
    ]
    assert (ran.status, ran.steps["simulate"]["attempts"]) == ("failed", 2)
    assert refusal(live.service, ran.run_id, "simulate", "retry", "x") == (
        "step 'simulate' is failed, so there is nothing to classify",
        "already classified as fail by timeout: not classified before the timeout",
    )


# -- many ------------------------------------------------------------------------------------------------------------


def test_of_many_decisions_one_that_comes_too_late_is_refused_and_the_others_count(live: Live) -> None:
    runs = [live.run(PARKED).run_id for _ in range(3)]
    decisions = [Decision(run_id, "simulate", "fail", "seen before") for run_id in runs]
    live.service.changes.preview_decisions(decisions)
    live.service.changes.classify(runs[1], "simulate", "fail", "somebody was faster")

    done = live.service.changes.decide(decisions).decisions

    assert [one.error is None for one in done] == [True, False, True]
    assert not done[1].is_recorded and type(done[1].error) is StepNotParked
    assert [live.look(run_id).status for run_id in runs] == ["failed"] * 3


def test_what_would_follow_is_what_follows_and_foreseeing_writes_nothing(live: Live) -> None:
    ran = live.run(PARKED)

    [foreseen] = live.service.changes.preview_decisions([Decision(ran.run_id, "simulate", "fail", "hopeless")])

    assert live.look(ran.run_id).log == ran.log
    live.service.changes.classify(ran.run_id, "simulate", "fail", "hopeless")
    after = live.look(ran.run_id)
    assert (foreseen.starts, after.status) == ([], "failed")
    assert _places(foreseen.follows) == _places(after.story[len(ran.story) :])


def _places(story: list[str]) -> list[str]:
    """Of whom something is told: how much is said depends on what was told before."""
    return [sentence.partition(":")[0] for sentence in story]
