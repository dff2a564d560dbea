"""An approval counts for what was approved: with other values a person is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.rounds.fork import Fork, outdated_approvals, own_kept, plan_fork, run_reasons
from mulligan.core.deciding.rounds.kept_approvals import (
    approvals_given,
    approvals_relied_on,
    changed_inputs,
    inputs_read,
)
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Kept
from mulligan.core.model.graph import Graph
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.workflow import Action, Expression, Map, Step, Template, Workflow
from mulligan.errors import Refused
from mulligan.testing.history import History, command, edge, expression, step, workflow

TARGET = Expression("inputs.target", ("inputs",))


def reading(source: str, *names: str) -> Action:
    """A program that reads a value."""
    return Action("shell", {"text": "go"}, {"b0": Template((Expression(source, names),))})


def question(*parts: str | Expression, **more: Any) -> Action:
    return Action("approve", {"message": {"${}": "b0"}, **more}, {"b0": Template(parts or ("ship it?",))})


def flow(ask: Action | None = None, deploy: Action | None = None) -> Workflow:
    return workflow(
        step("build"),
        step("ask", needs=["build"], action=ask or question()),
        step("prepare", needs=["ask"]),
        step("deploy", needs=["prepare"], action=deploy or reading("inputs.target", "inputs")),
        step("beside"),
    )


def ended(definition: Workflow, **inputs: Any) -> History:
    run = History(definition).start({"target": "staging", "other": 1, **inputs}).ok("build", "beside").approve("ask")
    return run.ok("prepare").ok("deploy")


def forked(old: History, from_step: str, definition: Workflow | None = None, **inputs: Any) -> Fork:
    graph = Graph(definition or old.state.workflow)
    return plan_fork(old.state, graph, from_step, inputs={**old.state.run.inputs, **inputs})


def test_an_approval_is_asked_again_if_a_step_far_behind_it_reads_an_input_with_another_value() -> None:
    old = ended(flow())

    found = forked(old, "deploy", target="production")

    assert found.asked_again == {"ask": "'deploy' comes after it and reads the input 'target', with another value"}
    assert found.runs == ("ask", "prepare", "deploy")
    why = run_reasons(old.state, Graph(old.state.workflow), "deploy", found)
    assert why["ask"] == f"a person is asked again: {found.asked_again['ask']}"
    assert why["prepare"] == "it comes after 'deploy'" or why["prepare"] == "it comes after 'ask'"


def test_an_approval_is_asked_again_if_its_question_reads_an_input_with_another_value() -> None:
    old = ended(flow(question("deploy to ", TARGET, "?"), reading("env.HOST", "env")))

    assert forked(old, "deploy", target="production").asked_again.keys() == {"ask"}


def test_an_approval_is_kept_if_nothing_that_it_is_about_has_changed() -> None:
    old = ended(flow())

    for inputs in ({}, {"target": "staging"}, {"other": 2}):
        found = forked(old, "deploy", **inputs)
        assert (found.asked_again, found.runs) == ({}, ("deploy",))
    # Nothing runs for which it was given.
    assert forked(old, "beside", target="production").runs == ("beside",)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("inputs.target", {"target"}),
        ("inputs . target == inputs['other']", {"target", "other"}),
        ('inputs["target"] + steps.a.output', {"target"}),
        ("inputs.target.size()", {"target"}),
        ("inputs", None),
        ("inputs.size()", None),
        ("inputs[env.NAME]", None),
        ('inputs["t\\u0061rget"]', None),
        ("[inputs].map(i, i.target) + [inputs.other]", None),
        ("kind.1", None),
    ],
)
def test_an_expression_that_does_not_name_its_inputs_may_read_any(source: str, names: set[str] | None) -> None:
    assert inputs_read(Expression(source, ("inputs",))) == names


def test_true_and_one_are_two_values_and_a_missing_input_is_another() -> None:
    assert changed_inputs({"a": 1, "b": [1], "c": 0}, {"a": True, "b": [1], "d": 0}) == {"a", "c", "d"}


def test_an_approval_is_asked_again_if_a_step_behind_it_reads_a_result_that_is_made_again() -> None:
    definition = workflow(
        step("image", writes=("image.tar",)),
        step("ask", action=question()),
        step("deploy", needs=["ask", "image"], action=reading("steps.image.output", "steps.image")),
        step("verify", needs=["deploy"], action=reading("steps.deploy.output", "steps.deploy")),
    )
    old = History(definition).start().ok("image").approve("ask").ok("deploy").ok("verify")

    found = forked(old, "image")

    assert found.asked_again == {"ask": "'deploy' comes after it and reads the result of 'image', which runs again"}
    # What follows from the approval is no reason to ask for it.
    assert forked(old, "deploy").asked_again == {}


@pytest.mark.parametrize(
    "reader",
    [
        step("deploy", needs=["ask", "image"], reads=("image.tar",)),
        step("deploy", needs=["ask", "image"], action=reading("steps.size()", "steps.*")),
        step("deploy", needs=["ask", "image"], action=Action("agent", {"prompt": "go"})),
    ],
)
def test_files_lists_of_steps_and_agents_read_results_too(reader: Step) -> None:
    definition = workflow(step("image", writes=("image.tar",)), step("ask", action=question()), reader)
    old = History(definition).start().ok("image").approve("ask").ok("deploy")

    assert forked(old, "image").asked_again.keys() == {"ask"}


def test_a_changed_question_is_asked_again_and_a_corrected_step_behind_it_is_not_a_reason() -> None:
    old = ended(flow())

    other = forked(old, "deploy", flow(question("ship it to everybody?")))
    corrected = forked(old, "deploy", flow(deploy=reading("inputs.target + '2'", "inputs")))

    assert (other.asked_again, other.runs) == ({"ask": "its question has changed"}, ("ask", "prepare", "deploy"))
    assert corrected.asked_again == {}


def test_a_skipped_approval_is_asked_for_if_that_depends_on_an_input_with_another_value() -> None:
    definition = workflow(
        step(
            "route",
            next=[edge("ask", when="is_production"), edge("deploy", when="is_staging")],
            action=reading("inputs.target", "inputs"),
        ),
        step("ask", action=question(), next=["deploy"]),
        step("deploy"),
    )
    old = History(definition, {"is_production": False}).start({"target": "staging"}).ok("route").ok("deploy")
    assert old.statuses["ask"] == "skipped"

    found = forked(old, "deploy", target="production")

    assert found.asked_again == {"route": "whether 'ask' is asked may depend on the input 'target', with another value"}
    assert found.runs == ("route", "ask", "deploy")
    assert forked(old, "deploy").kept[0].step == "route"


def test_an_approval_inside_a_map_or_a_called_workflow_counts_as_one_of_its_step() -> None:
    asked = step("each", map=Map(over=expression("[1]")), do=(command(), step("x", action=question(TARGET))))
    definition = workflow(asked, step("deploy", needs=["each"]))
    child = workflow(step("inner", action=question()))
    called = Action("workflow", {"file": "c", "inputs": {"to": {"${}": "b0"}}}, {"b0": Template((TARGET,))})
    calling = workflow(step("call", action=called), step("deploy", needs=["call"]), children={"c": child})

    assert approvals_relied_on(Graph(definition), ["each"], {"deploy"}) == ["each"]
    assert approvals_relied_on(Graph(calling), ["call"], {"deploy"}) == ["call"]
    old = History(calling).start({"target": "staging"}).child_ended("call").ok("deploy")
    assert forked(old, "deploy", target="production").asked_again.keys() == {"call"}


def test_what_a_client_says_that_was_kept_is_replaced_by_what_was_and_refused_if_there_was_nothing() -> None:
    old = ended(flow())
    graph = Graph(old.state.workflow)
    forged = Kept("ask", "completed", output={"approved": True, "by": "the boss"})

    [own] = own_kept(old.state, graph, [forged])

    assert own.output == {"approved": True, "by": "someone", "reason": "fine"}
    open_run = History(old.state.workflow).start({"target": "staging"}).ok("build")
    for name in ("ask", "nothing"):
        with pytest.raises(Refused):
            list(own_kept(open_run.state, graph, [Kept(name, "completed")]))
    kept = {"build", "ask", "prepare", "beside"}
    assert outdated_approvals(old.state, graph, {**old.state.run.inputs, "target": "x"}, kept).keys() == {"ask"}


# -- another round ---------------------------------------------------------------------------------------------------


def test_a_round_keeps_an_approval_unless_its_question_stands_behind_what_runs_again() -> None:
    definition = flow()
    run = History(definition).start({"target": "a"}).ok("build", "beside").approve("ask").ok("prepare").fail("deploy")

    run.retry()
    assert run.statuses["ask"] == "completed"
    run.fail("deploy").retry("build", keep_completed=True).ok("build")

    assert run.statuses["ask"] == "running"
    assert run.statuses["deploy"] == "waiting"
    run.approve("ask")
    assert run.queued == ["prepare"]


def test_a_round_with_a_changed_question_asks_it_also_if_completed_steps_are_kept() -> None:
    run = History(flow()).start({"target": "a"}).ok("build", "beside").approve("ask").ok("prepare").fail("deploy")

    run.retry_with(flow(question("ship it to everybody?")), keeps_completed=True)

    assert (run.statuses["ask"], run.statuses["build"]) == ("running", "completed")


def test_an_approval_that_nothing_relies_on_any_more_is_not_asked_again() -> None:
    definition = workflow(step("ask", action=question()), step("deploy", needs=["ask"]), step("beside"))
    run = History(definition).start().approve("ask").ok("deploy").fail("beside")

    changed = workflow(step("ask", action=question("else?")), step("deploy", needs=["ask"]), step("beside"))
    run.retry_with(changed, keeps_completed=True)

    assert run.statuses == {"ask": "completed", "deploy": "completed", "beside": "ready"}


# -- a fork at an event ----------------------------------------------------------------------------------------------


def at_event(old: History, **inputs: Any) -> History:
    fork = History(old.state.workflow, evaluator=old.evaluator)
    fork.clock = old.clock
    changed = {"inputs": {**old.state.run.inputs, **inputs}, "has_inputs": True} if inputs else {}
    request = r.RunRequested(
        fork.clock, 2, history=pack_history(old.log), forked_from=1, forked_at=len(old.log), uid="new", **changed
    )
    return fork.report(request)


def test_a_fork_at_an_event_keeps_no_approval_for_other_values() -> None:
    old = History(flow()).start({"target": "staging", "other": 1}).ok("build").approve("ask").started("prepare")

    with pytest.raises(Refused, match="'deploy' reads the input 'target'") as refused:
        at_event(old, target="production")

    assert refused.value.data["step"] == "ask"
    assert at_event(old, other=2).statuses["ask"] == "completed"
    assert at_event(old).statuses["ask"] == "completed"
    assert approvals_given(old.state) == ["ask"]


def test_a_fork_at_an_event_asks_an_open_question_with_its_own_values() -> None:
    asked = flow(question("deploy to ", TARGET, "?"))
    answers = {"inputs.target": lambda names: names["inputs"]["target"]}
    old = History(asked, answers).start({"target": "staging", "other": 1}).ok("build")
    assert approvals_given(old.state) == []

    fork, same = at_event(old, target="production"), at_event(old)

    assert (fork["ask"].status, fork["ask"].bindings["b0"]) == ("running", "deploy to production?")
    assert (same["ask"].attempt, same["ask"].bindings["b0"]) == (1, "deploy to staging?")
    assert (e.AttemptInterrupted("ask", 1) in fork.facts(e.AttemptInterrupted), same.status) == (True, "running")
    assert "prepare" in fork.approve("ask").queued


def test_an_approval_that_was_given_below_a_step_counts_while_the_step_goes_on() -> None:
    asked = step("each", map=Map(over=expression("list")), do=(Step(action=question()), command("use")))
    definition = workflow(asked)
    old = History(definition, {"list": [1, 2]}).start({"target": "a"})
    assert approvals_given(old.state) == ["each"]
