"""What was decided about the same error before, on both stores; and decisions about attempts that are over."""

from __future__ import annotations

import pytest
from tests.support.runner import Live

from mulligan.errors import OtherAttemptParked, UnknownStep

PARKED = """\
name: parked
steps:
  - {step: simulate, shell: "test -e fixed || { echo first >&2; echo diverged >&2; exit 42; }", triage: true}
  - {step: publish, needs: [simulate], shell: echo published}
"""
OTHER = 'name: other\nsteps:\n  - {step: solve, shell: "exit 42", triage: true}\n'
DIFFERENT = 'name: different\nsteps:\n  - {step: solve, shell: "exit 41", triage: true}\n'


def test_what_was_decided_about_the_same_step_comes_first_then_the_same_error_anywhere(live: Live) -> None:
    first = live.run(PARKED).run_id
    live.service.changes.classify(first, "simulate", "fail", "the mesh is broken")
    live.resume(first)
    elsewhere = live.run(OTHER).run_id
    live.service.changes.classify(elsewhere, "solve", "fail", "a known bug of the solver")
    different = live.run(DIFFERENT).run_id
    live.service.changes.classify(different, "solve", "fail", "out of licences")

    now = live.run(PARKED).run_id
    found = live.service.decisions.details(now, "simulate")

    assert found.entry is not None and found.entry.step == "simulate"
    assert found.log is not None and (found.log.stream, found.log.text) == ("stderr", "first\ndiverged")
    assert [(one.about, one.run_id, one.workflow, one.step, one.reason) for one in found.decisions] == [
        ("same_step", first, "parked", "simulate", "the mesh is broken"),
        ("same_error", elsewhere, "other", "solve", "a known bug of the solver"),
    ]
    assert (found.decisions[0].worked, found.decisions[0].ended) == (
        False,
        "failed with EXIT_NONZERO; the run failed",
    )


def test_a_retry_that_worked_says_so_and_one_of_the_same_run_is_known_too(live: Live) -> None:
    run_id = live.run(PARKED).run_id
    live.service.changes.classify(run_id, "simulate", "retry", "try once more")
    live.resume(run_id)

    (again,) = live.service.decisions.details(run_id, "simulate").decisions
    live.write("fixed")
    live.service.changes.classify(run_id, "simulate", "retry", "the mesh is repaired")
    live.resume(run_id)
    (live.folder / "fixed").unlink()
    decisions = live.service.decisions.details(live.run(PARKED).run_id, "simulate").decisions

    assert (again.reason, again.worked, again.ended) == (
        "try once more",
        False,
        "parked again with EXIT_NONZERO after attempt 2",
    )
    assert [(one.reason, one.worked, one.ended) for one in decisions] == [
        ("the mesh is repaired", True, "completed on attempt 3"),
        ("try once more", True, "completed on attempt 3"),
    ]


def test_a_decision_about_an_attempt_that_is_over_is_refused_and_nothing_is_recorded(live: Live) -> None:
    run_id = live.run(PARKED).run_id
    live.service.changes.classify(run_id, "simulate", "retry", "once more", attempt=1)
    live.resume(run_id)

    with pytest.raises(OtherAttemptParked):
        live.service.changes.classify(run_id, "simulate", "fail", "looks hopeless", attempt=1)

    assert live.service.decisions.details(run_id, "simulate").entry is not None


def test_what_does_not_wait_any_more_says_who_decided(live: Live) -> None:
    run_id = live.run(PARKED).run_id
    live.service.changes.classify(run_id, "simulate", "fail", "the mesh is broken")
    live.resume(run_id)

    found = live.service.decisions.details(run_id, "simulate")

    assert found.entry is None and found.answer is not None
    assert (found.answer.verdict, found.answer.reason) == ("fail", "the mesh is broken")
    assert live.service.decisions.details(run_id, "publish").answer is None
    with pytest.raises(UnknownStep):
        live.service.decisions.details(run_id, "nothing")


def test_an_approval_that_was_answered_says_by_whom(live: Live) -> None:
    asking = (
        "name: ask\nsteps:\n  - {step: one, approve: {message: May it?}}\n  - {step: two, approve: {message: And?}}\n"
    )
    run_id = live.run(asking).run_id
    live.service.changes.approve(run_id, "one", is_approved=True, reason="seen and tested")
    live.service.changes.approve(run_id, "two", is_approved=False, reason="not on a Friday")
    live.resume(run_id)

    answers = [live.service.decisions.details(run_id, step).answer for step in ("one", "two")]

    assert [answer and (answer.verdict, answer.reason) for answer in answers] == [
        ("approve", "seen and tested"),
        ("refuse", "not on a Friday"),
    ]
