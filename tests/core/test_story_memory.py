"""What whoever tells a run remembers of it: who did not do their part, whose failures are open, what was said."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Route
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Handler, Map, Need, Workflow
from mulligan.history.story_memory import StoryMemory
from mulligan.testing.history import History, command, expression, handler, step, workflow

BAD = failure("EXIT_NONZERO", exit_code=1)


def remembering(flow: Workflow | None, *facts: e.Fact) -> StoryMemory:
    memory = StoryMemory(flow)
    for fact in facts:
        memory.update(fact)
    return memory


def failed(name: str, to: str = "", visit: int = 1, **fields: bool) -> e.StepFailed:
    route = Route("selected", 0, to, 1) if to else Route("no_route")
    return e.StepFailed(name, visit, BAD, route=route, **fields)


def test_many_facts_are_remembered_as_each_of_them_alone() -> None:
    log = History(workflow(step("a"), step("b"))).start().ok("a").ok("b").log
    together = StoryMemory(NEEDY)

    together.update_all(log)

    assert vars(together) == vars(remembering(NEEDY, *(entry.fact for entry in log)))


# -- needs -----------------------------------------------------------------------------------------------------------

NEEDY = workflow(
    step("a"),
    step("b"),
    step("z", needs=["a", "b"]),
    step("lenient", needs=[Need("a", "success_or_skipped"), Need("b", "always")]),
    step("grouped", needs=[Need("all", is_group=True)]),
    step("alike", needs=[Need("all", is_group=True)]),
    groups={"all": ("a", "b")},
)


@pytest.mark.parametrize(
    ("facts", "name", "missing"),
    [
        ((failed("b"),), "z", "b"),
        ((e.StepSkipped("a", "when"),), "z", "a"),
        ((e.StepCancelled("a", 1),), "z", "a"),
        ((failed("b"), failed("a")), "z", "a"),
        ((), "z", ""),
        # Nobody knows such a step.
        ((failed("a"),), "x", ""),
        # It may be skipped, and nothing else.
        ((e.StepSkipped("a", "when"),), "lenient", ""),
        ((failed("a"),), "lenient", "a"),
        ((e.StepCancelled("a", 1),), "lenient", "a"),
        # Whatever becomes of the other, it has ended.
        ((failed("b"),), "lenient", ""),
        ((failed("b"),), "grouped", "b"),
        ((), "grouped", ""),
        # What was allowed to fail stops nobody.
        ((failed("a", is_allowed=True),), "z", ""),
        # Another visit, or one that stands in: it is not at its end any more, or not missing.
        ((failed("a"), e.StepEntered("a", 2)), "z", ""),
        ((failed("a"), e.StepReplaced("a", "fix")), "z", ""),
        ((failed("a"), e.RunReopened(2, "", "", ("a",))), "z", ""),
        ((failed("a"), e.RunReopened(2, "", "", ("b",))), "z", "a"),
    ],
)
def test_a_step_cannot_start_for_the_sake_of_the_first_that_did_not_do_its_part(
    facts: tuple[e.Fact, ...], name: str, missing: str
) -> None:
    assert remembering(NEEDY, *facts).unmet_need(name) == missing


def test_the_one_that_is_missing_in_a_group_is_looked_for_once() -> None:
    memory = remembering(NEEDY, failed("b"))
    first = memory.unmet_need("grouped")

    memory.update(failed("a"))

    # It is still true, and was told to the first that asked.
    assert (first, memory.unmet_need("alike")) == ("b", "b")


def test_a_member_that_goes_again_is_missing_no_more() -> None:
    memory = remembering(NEEDY, failed("a"), failed("b"))
    first = memory.unmet_need("grouped")

    memory.update(e.StepEntered("a", 2))

    assert (first, memory.unmet_need("alike")) == ("a", "b")


def test_another_round_looks_again_at_who_is_missing() -> None:
    memory = remembering(NEEDY)
    assert memory.unmet_need("grouped") == ""

    memory.update(failed("b"))
    before = memory.unmet_need("grouped")
    memory.update(e.RunReopened(2, "", "", ()))

    # That nobody is missing is believed as long as the round lasts.
    assert (before, memory.unmet_need("grouped")) == ("", "b")


def test_whoever_does_not_know_the_workflow_names_nobody() -> None:
    assert remembering(None, failed("a")).unmet_need("z") == ""


# -- failures --------------------------------------------------------------------------------------------------------


def test_the_last_failure_of_a_place_is_known_until_it_ends() -> None:
    other = failure("TIMEOUT")
    memory = remembering(None, e.AttemptFailed("a", 1, BAD), e.ResultRejected("b", 1, other))

    assert (memory.failure("a"), memory.failure("b"), memory.failure("c")) == (BAD, other, None)


@pytest.mark.parametrize(
    "end",
    [
        e.StepCompleted("a", 1),
        failed("a"),
        failed("a", is_allowed=True),
        e.CommandCompleted("a", "x", "do"),
        e.CommandFailed("a", "x", "do", BAD),
        e.CommandCancelled("a", "x", "do"),
    ],
    ids=lambda fact: f"{type(fact).__name__} {getattr(fact, 'is_allowed', '')}",
)
def test_what_has_ended_has_no_last_failure(end: e.Fact) -> None:
    assert remembering(None, e.AttemptFailed("a", 1, BAD), end).failure("a") is None


def test_a_failure_is_open_until_the_visit_that_it_was_sent_to_completes() -> None:
    memory = remembering(None, failed("a", to="fix"))
    assert (memory.unhandled_steps(), memory.failures_routed_to("fix", 1), memory.failures_routed_to("fix", 2)) == (
        ["a"],
        ["a"],
        [],
    )

    memory.update(e.StepCompleted("fix", 1))

    assert (memory.unhandled_steps(), memory.failures_routed_to("fix", 1)) == ([], [])


def test_a_remediation_that_fails_hands_on_what_it_was_to_deal_with() -> None:
    memory = remembering(None, failed("a", to="fix"), failed("fix", to="more"))
    assert (memory.failures_routed_to("more", 1), memory.failures_routed_to("fix", 1)) == (["fix", "a"], [])

    memory.update(e.StepCompleted("more", 1))

    assert memory.unhandled_steps() == []


def test_a_remediation_that_fails_with_nobody_to_go_to_leaves_all_of_it() -> None:
    assert remembering(None, failed("a", to="fix"), failed("fix")).unhandled_steps() == ["a", "fix"]


def test_what_may_fail_and_the_failure_of_end_are_nobodys_to_handle() -> None:
    assert remembering(None, failed("a", is_allowed=True), failed("end")).unhandled_steps() == []


def test_a_step_that_failed_in_two_visits_is_named_once() -> None:
    memory = remembering(None, failed("a", to="fix"), failed("a", to="fix", visit=2))

    assert (memory.unhandled_steps(), memory.failures_routed_to("fix", 1)) == (["a"], ["a"])


def test_what_was_handled_and_came_to_nothing_is_open_again() -> None:
    lost = remembering(None, e.StepSettled("a", "failed", BAD))

    assert (lost.unhandled_steps(), remembering(None, e.StepSettled("a", "failed")).unhandled_steps()) == (["a"], [])


def test_another_round_begins_with_nothing_open() -> None:
    memory = remembering(None, failed("a"), failed("b", to="fix"), e.RunReopened(2, "", "", ("a",)))

    assert (memory.unhandled_steps(), memory.failures_routed_to("fix", 1)) == ([], [])


# -- what the workflow says ------------------------------------------------------------------------------------------

FIX = "a.on_failure@1.0"


def test_what_a_command_does_is_known_while_it_is_open() -> None:
    inner = command("fix", on_failure=handler("again"))
    memory = remembering(workflow(step("a", on_failure=Handler((inner,)))), e.CommandEntered(FIX, "a", "handler"))
    below = f"{FIX}.on_failure@1.0"

    memory.update(e.CommandEntered(below, FIX, "handler"))

    assert (memory.spec(FIX), memory.spec(below)) == (inner, command("again"))
    memory.update(e.CommandCompleted(FIX, "a", "handler"))
    assert memory.spec(FIX) is None


def test_the_command_of_an_item_is_known_though_the_item_says_nothing() -> None:
    flow = workflow(step("m", map=Map(over=expression("x")), do=(command("one"), command("two"))))

    memory = remembering(flow, e.CommandEntered("m[0].1", "m[0]", "do", 1))

    assert memory.spec("m[0].1") == command("two")


def test_of_a_command_whose_parent_is_not_known_nothing_is() -> None:
    """Whoever looks on from the middle has not seen the parent being entered."""
    flow = workflow(step("a", on_failure=Handler((command("fix", on_failure=handler("again")),))))

    memory = remembering(flow, e.CommandEntered(f"{FIX}.on_failure@1.0", FIX, "handler"))

    assert memory.spec(f"{FIX}.on_failure@1.0") is None
    assert remembering(None, e.CommandEntered(FIX, "a", "handler")).spec(FIX) is None


def test_steps_are_known_by_name_and_end_is_one_of_them() -> None:
    memory = remembering(NEEDY)

    assert (memory.step("a"), memory.step("end"), memory.step("x")) == (NEEDY.steps[0], NEEDY.end, None)
    assert (memory.spec("a"), remembering(None).step("a")) == (NEEDY.steps[0], None)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ({"status": "failed", "reason": "too few"}, "too few"),
        ('{"reason": "too few"}', "too few"),
        ({"reason": 7}, "7"),
        ({"rows": 1}, ""),
        ({"reason": None}, ""),
        ("too few", ""),
        (None, ""),
    ],
)
def test_the_reason_that_end_returned_is_known_as_its_own(output: object, reason: str) -> None:
    assert remembering(None, e.StepCompleted("end", 1, output=output)).reason_of_end == reason
    assert remembering(None, e.StepCompleted("a", 1, output=output)).reason_of_end == ""


def test_an_end_that_said_something_in_the_round_before_has_not_said_it_in_this_one() -> None:
    said, silent = e.StepCompleted("end", 1, output={"reason": "too few"}), e.StepCompleted("end", 2)

    assert remembering(None, said, silent).reason_of_end == ""
