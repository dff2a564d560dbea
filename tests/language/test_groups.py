"""Groups: steps of one file that are tried again together, read as a workflow of their own."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan import Workflow as Builder
from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError
from mulligan.language import load_text
from mulligan.language.loading import examine
from mulligan.language.schema import schema

PUBLISH = """\
name: nightly
inputs: {day: {default: monday}, other: {default: x}}
defaults: {timeout: 5m}
retry_policies: {patient: {rules: [{any: true, max_retries: 7}]}}
steps:
  - {step: fetch, shell: "echo ${inputs.other}"}
  - step: publish
    needs: [fetch]
    group:
      inputs: {rows: "${steps.fetch.output}"}
      order: sequential
      retry: {max_retries: 2, delay: 30s}
      steps:
        - {step: stage, shell: "echo ${inputs.rows} ${inputs.day}"}
        - {step: load-all, shell: "echo ${steps.stage.output}", retry: patient}
  - {step: tell, needs: [publish], shell: "echo ${steps.publish.output.stage}"}
"""


def step_of(workflow: Workflow, name: str) -> Any:
    return next(step for step in workflow.steps if step.name == name)


def refused(text: str) -> list[tuple[str, int, str]]:
    with pytest.raises(LanguageError) as error:
        load_text(text)
    return [(problem.code, problem.line, problem.hint) for problem in error.value.problems]


def test_a_group_is_a_step_that_calls_a_workflow_of_its_own():
    workflow = load_text(PUBLISH)

    publish = step_of(workflow, "publish")
    child = workflow.children["group:publish"]
    assert (publish.action.kind, publish.action.params["group"]) == ("workflow", True)
    assert (child.name, [step.name for step in child.steps]) == ("nightly/publish", ["stage", "load-all"])
    assert [need.of for need in step_of(child, "load-all").needs] == ["stage"]


def test_its_retry_is_that_of_the_step():
    inside, outside = (
        load_text(PUBLISH),
        load_text(
            PUBLISH.replace("      retry: {max_retries: 2, delay: 30s}\n", "").replace(
                "    needs: [fetch]\n    group",
                "    needs: [fetch]\n    retry: {max_retries: 2, delay: 30s}\n    group",
            )
        ),
    )

    assert step_of(inside, "publish").rules == step_of(outside, "publish").rules
    assert step_of(inside, "publish").rules[0].max_retries == 2


def test_it_is_given_the_inputs_that_are_read_inside_and_no_others():
    workflow = load_text(PUBLISH)

    child, given = workflow.children["group:publish"], step_of(workflow, "publish").action.params["inputs"]
    assert set(child.inputs) == set(given) == {"day", "rows"}
    assert (child.inputs["day"].type, child.inputs["rows"].type) == ("string", "any")


def test_its_output_has_the_outputs_of_its_steps_but_not_those_of_a_matrix():
    workflow = load_text(
        PUBLISH.replace(
            "steps:\n        -", "steps:\n        - {step: sim, matrix: {n: [1, 2]}, shell: echo}\n        -"
        )
    )

    assert set(workflow.children["group:publish"].outputs) == {"stage", "load_all"}


def test_what_the_file_says_for_all_steps_holds_inside_too():
    child = load_text(PUBLISH).children["group:publish"]

    assert [step.timeout for step in child.steps] == [300.0, 300.0]
    assert step_of(child, "load-all").rules[0].max_retries == 7


def test_what_only_a_group_uses_is_not_called_unused():
    text = PUBLISH + "secrets: {token: {env: TOKEN}}\nhandlers: {tidy: echo}\n"
    used = text.replace(
        "{step: stage, shell:", "{step: stage, on_failure: {use: tidy}, env: {T: '${secrets.token}'}, shell:"
    )

    codes = [sorted(found.code for found in examine("f.yaml", text=one).warnings) for one in (text, used)]

    assert codes == [["warning.language.unused_handler", "warning.language.unused_secret"], []]


def test_groups_may_stand_in_groups():
    workflow = load_text("""\
name: deep
inputs: {who: {default: me}}
steps:
  - step: outer
    group:
      steps:
        - step: inner
          group: {retry: 1, steps: [{step: last, shell: "echo ${inputs.who}"}]}
""")

    inner = workflow.children["group:outer"].children["group:inner"]
    assert (inner.name, set(inner.inputs)) == ("deep/outer/inner", {"who"})


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "${inputs.rows} ${inputs.day}",
            "${steps.fetch.output}",
            ("language.unknown_step", 14, "it is outside the group: pass its output to the group under 'inputs'"),
        ),
        (
            "{step: stage, shell",
            "{step: stage, needs: [fetch], shell",
            ("language.unknown_step", 14, "it is outside the group: let the group itself need it"),
        ),
        (
            "needs: [publish]",
            "needs: [stage]",
            ("language.unknown_step", 16, "it is a step of the group 'publish': name that"),
        ),
        (
            "${steps.publish.output.stage}",
            "${steps.stage.output}",
            (
                "language.unknown_step",
                16,
                "it is a step of the group 'publish', whose output has it: steps.publish.output.stage",
            ),
        ),
        (
            "    needs: [fetch]\n",
            "    needs: [fetch]\n    retry: 1\n",
            ("language.duplicate_key", 13, "remove one of them"),
        ),
        (
            "{rows: ",
            "{day: ",
            ("language.duplicate_input", 10, "give it another name"),
        ),
        ("${inputs.rows}", "${inputs.row}", ("language.unknown_input", 14, "did you mean 'rows'?")),
    ],
)
def test_what_reads_or_needs_across_a_group_is_refused_and_told_what_to_write(
    old: str, new: str, problem: tuple[str, int, str]
):
    text = PUBLISH.replace(old, new)
    assert text != PUBLISH

    assert problem in refused(text)


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("{}", "language.missing_key"),
        ("{steps: []}", "language.type"),
        ("[a]", "language.type"),
        ("{steps: [{step: a, shel: x}]}", "language.unknown_key"),
        ("{steps: [{step: a, shell: x}], inputs: 3}", "language.type"),
        ("{steps: [{step: a, shell: x}], timeout: 5s}", "language.unknown_key"),
    ],
)
def test_a_group_that_is_none_is_refused(group: str, code: str):
    assert code in [found for found, _, _ in refused(f"name: w\nsteps: [{{step: g, group: {group}}}]")]


def test_a_group_beside_an_action_is_refused():
    text = "name: w\nsteps: [{step: g, shell: x, group: {steps: [{step: a, shell: x}]}}]"

    assert [code for code, _, _ in refused(text)] == ["language.several_actions"]


def test_a_handler_is_no_place_for_a_group():
    text = "name: w\nsteps: [{step: g, shell: x, on_failure: {group: {steps: [{step: a, shell: x}]}}}]"

    assert "language.unknown_key" in [code for code, _, _ in refused(text)]


def test_the_builder_takes_groups_as_files_do():
    built = Builder("nightly")
    built.step("publish", group={"steps": [{"step": "stage", "shell": "echo"}], "retry": 2})

    workflow = built.check()

    assert [step.name for step in workflow.children["group:publish"].steps] == ["stage"]
    assert step_of(workflow, "publish").rules[0].max_retries == 2


def test_the_schema_knows_groups():
    found = schema()["$defs"]["group"]

    assert set(found["properties"]) == {"steps", "retry", "inputs", "order"}
    assert found["required"] == ["steps"]
