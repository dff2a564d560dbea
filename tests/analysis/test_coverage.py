"""Recovery coverage: how cases end, and what deals with them."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.analysis.coverage.explore import explore, story_in
from mulligan.analysis.coverage.exploring import Explorer
from mulligan.analysis.coverage.results import Case, Coverage
from mulligan.core.model.workflow import Action, Map, Triage, Workflow
from mulligan.errors import InputInvalid, UnknownStep
from mulligan.language.expressions import Cel
from mulligan.testing.history import command, edge, handler, retry, step, workflow


def cases(definition: Workflow, **fields: Any) -> dict[tuple[str, str, str], Case]:
    found = explore(definition, evaluator=Cel(), pairs=False, **fields)
    return {(case.step, case.failure, case.times): case for cell in found.cells for case in cell.cases}


def ends(case: Case) -> tuple[str, str, str, int]:
    return case.verdict, case.rung, case.run_status, case.attempts


def test_a_retry_recovers_a_failure_until_its_budget_is_spent():
    found = cases(workflow(step("a", rules=retry(2, delay=60.0)), step("b", needs=["a"])))

    assert ends(found["a", "EXIT_NONZERO", "once"]) == ("recovered", "retry", "completed", 2)
    assert ends(found["a", "EXIT_NONZERO", "twice"]) == ("recovered", "retry", "completed", 3)
    assert ends(found["a", "EXIT_NONZERO", "always"]) == ("fails", "nothing", "failed", 3)
    assert found["a", "EXIT_NONZERO", "always"].seconds == 120.0


def test_a_lost_worker_is_no_failure_until_the_reruns_are_spent():
    found = cases(workflow(step("a")))

    assert ends(found["a", "WORKER_LOST", "twice"]) == ("recovered", "rerun", "completed", 3)
    assert ends(found["a", "WORKER_LOST", "always"]) == ("fails", "nothing", "failed", 4)


def test_the_worst_case_has_every_attempt_take_as_long_as_it_may():
    found = cases(workflow(step("a", timeout=30.0, rules=retry(1, delay=60.0))))

    assert found["a", "TIMEOUT", "always"].seconds == 30 + 60 + 30
    assert found["a", "EXIT_NONZERO", "always"].seconds == 30 + 60 + 30


def test_handlers_routes_and_allowances_are_told_apart():
    definition = workflow(
        step("a", on_failure=handler("fix")),
        step("b", next=[edge("mend", "failure", then="rerun")]),
        step("c", next=[edge("other", "failure")]),
        step("d", continue_on_error=True),
        step("e", triage=Triage()),
        step("mend"),
        step("other"),
    )
    found = cases(definition)

    assert ends(found["a", "EXIT_NONZERO", "always"]) == ("recovered", "handler", "completed", 1)
    assert ends(found["b", "EXIT_NONZERO", "once"]) == ("recovered", "remediation", "completed", 2)
    assert found["b", "EXIT_NONZERO", "always"].verdict == "fails"
    assert ends(found["c", "EXIT_NONZERO", "always"]) == ("handled", "route", "completed", 1)
    assert ends(found["d", "EXIT_NONZERO", "always"]) == ("allowed", "allowed", "completed", 1)
    assert ends(found["e", "EXIT_NONZERO", "once"]) == ("parked", "triage", "waiting", 1)


def test_what_deals_with_failures_fails_too():
    definition = workflow(
        step("a", on_failure=handler("fix"), rules=retry(1, recovery_script=command("mend"))),
        step("b", next=[edge("mend", "failure", then="continue")]),
        step("mend"),
        step("c", undo=command("undo"), needs=["a"]),
        step("d", needs=["c"]),
    )
    found = cases(definition)

    assert found["a", "handler fails", "always"].verdict == "fails"
    assert ends(found["a", "recovery script of rule 1 fails", "once"])[:2] == ("recovered", "handler")
    assert found["b", "remediation 'mend' fails", "always"].verdict == "fails"
    assert found["c", "undo fails", "always"].verdict == "fails"


def test_a_failure_of_a_step_that_only_failures_lead_to_is_played_after_one():
    found = cases(workflow(step("a", rules=retry(1), next=[edge("mend", "failure", then="rerun")]), step("mend")))

    assert found["mend", "EXIT_NONZERO", "once"].verdict == "fails"
    assert found["mend", "WORKER_LOST", "once"].verdict == "recovered"


def test_a_cancelled_run_and_a_killed_worker_are_no_holes():
    found = cases(workflow(step("a", undo=command("undo")), step("b", needs=["a"])))

    assert ends(found["b", "cancel", "once"]) == ("allowed", "cancel", "cancelled", 1)
    assert ends(found["b", "kill", "once"]) == ("recovered", "rerun", "completed", 2)


def test_a_killed_worker_fails_what_must_not_run_twice():
    found = cases(workflow(step("a", on_lost="fail"), step("b")))

    assert found["b", "kill", "once"].verdict == "fails"


CHILD = workflow(step("inner", rules=retry(1)))
CALLS = Action("workflow", {"file": "child.yaml"})


def test_the_steps_of_a_child_workflow_have_rows_of_their_own():
    found = cases(workflow(step("call", action=CALLS, rules=retry(1)), children={"child.yaml": CHILD}))

    assert found["call", "CHILD_FAILED", "once"].verdict == "recovered"
    assert found["call/inner", "EXIT_NONZERO", "once"].verdict == "recovered"
    assert found["call/inner", "EXIT_NONZERO", "always"].verdict == "fails"


def test_every_kind_of_step_is_played():
    definition = workflow(
        step("wait", action=Action("wait", {"seconds": 60})),
        step("ask", action=Action("approve", {"text": "go?", "timeout": 60})),
        step("each", map=Map(lister=command("list"), on_item_failure="collect"), do=(command("one"),)),
        step("last", needs=["wait", "ask", "each"]),
        end=step("end"),
    )
    found = cases(definition)

    assert found["ask", "APPROVAL_REFUSED", "once"].verdict == "fails"
    assert found["ask", "APPROVAL_EXPIRED", "once"].seconds == 60.0
    assert found["each", "EXIT_NONZERO", "always"].verdict == "allowed"
    assert found["each", "list of items fails", "always"].verdict == "fails"
    assert found["wait", "cancel", "once"].verdict == "allowed"
    assert found["end", "EXIT_NONZERO", "once"].verdict == "fails"


def test_one_step_and_one_failure_can_be_chosen():
    definition = workflow(step("a"), step("b"))

    assert {case.step for case in cases(definition, step="b").values()} == {"b"}
    assert set(cases(definition, step="a", failure="exit_nonzero")) == {
        ("a", "EXIT_NONZERO", times) for times in ("once", "twice", "always")
    }
    with pytest.raises(UnknownStep):
        cases(definition, step="c")
    with pytest.raises(InputInvalid):
        cases(definition, failure="NEVER_HEARD_OF")


def test_a_cut_exploration_says_so():
    answers = iter([True, False])

    found = explore(workflow(step("a"), step("b")), evaluator=Cel(), may_go_on=lambda: next(answers))

    assert found.cases_count == 2
    assert "not all failures were played: the time was up" in found.unknown


def two_that_help_each_other() -> Workflow:
    """Each failure alone is dealt with; both together are not."""
    return workflow(
        step("a", next=[edge("b", "failure", then="continue"), edge("b", "success")]),
        step("b"),
    )


def test_pairs_show_what_single_failures_do_not():
    found = explore(two_that_help_each_other(), evaluator=Cel())

    assert found.pairs_count == 9
    assert not found.is_sample


def test_the_story_of_a_case_is_in_the_words_of_explain():
    definition = workflow(step("before"), step("a", rules=retry(1, delay=60.0), needs=["before"]))

    played = story_in(Explorer(definition, Cel()), "a", "EXIT_NONZERO", "once")

    texts = [(line.place, line.text) for line in played.story]
    assert played.case.verdict == "recovered"
    assert ("a", "attempt 1 failed: EXIT_NONZERO 1: exit code 1") in texts or any(
        "attempt 1" in text for _, text in texts
    )
    assert not any(place == "before" for place, _ in texts)


@pytest.mark.nightly
def test_the_same_seed_finds_the_same() -> None:
    steps = [step(f"s{i}", needs=[f"s{i - 1}"] if i % 3 else []) for i in range(16)]

    first, second = (explore(workflow(*steps), evaluator=Cel(), seed=7) for _ in range(2))

    assert isinstance(first, Coverage) and first == second
    assert first.is_sample


def test_a_failure_that_is_allowed_fails_nothing_if_its_remediation_fails_too():
    allowed = {"continue_on_error": True}
    definition = workflow(step("a", next=[edge("mend", "failure", then="rerun")], **allowed), step("mend", **allowed))

    found = cases(definition)

    assert found["a", "remediation 'mend' fails", "always"].run_status == "completed"
