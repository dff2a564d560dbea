"""Regular workflows of Prodigy's as files: their forms, parameters, and what holds their steps together."""

from __future__ import annotations

from pathlib import Path

import pytest

from .whole import refusal, steps, tree, warnings

STEPS = "\n  - {id: a, shell: make}\n  - {id: b, claude: /check}\n"
FORMS = [
    STEPS.replace("\n  ", "\n"),
    f"commands:{STEPS}",
    f"steps:{STEPS}",
    f"tasks:{STEPS}",
    '{"commands": [{"id": "a", "shell": "make"}, {"id": "b", "claude": "/check"}]}',
]


@pytest.mark.parametrize("text", FORMS)
def test_every_form_of_a_file_has_the_same_steps_one_after_the_other(text: str) -> None:
    found = tree(text)

    assert [step["step"] for step in found["steps"]] == ["worktree", "a", "b", "merge"]
    unattended = {"PRODIGY_AUTOMATION": "true"}
    assert (found["order"], found["defaults"]) == ("sequential", {"shell": "sh", "strict": False, "env": unattended})


def test_the_name_of_a_file_is_kept() -> None:
    found = tree(f"name: nightly checks\ndescription: every night\ncommands:{STEPS}")

    assert (found["name"], found["description"]) == ("nightly checks", "every night")


def test_the_arguments_are_an_input_only_where_they_are_read() -> None:
    assert "inputs" not in tree("- shell: make")
    args = {"default": "", "description": "what Prodigy calls --args"}
    assert tree("- shell: make $ARG")["inputs"] == {"args": args}


# -- parameters ------------------------------------------------------------------------------------------------------


def test_parameters_are_inputs_and_variables() -> None:
    text = (
        "parameters:\n"
        "  required: [{name: target, type: string, description: where to}, who]\n"
        "  optional: [{name: n, type: number, default: 3}, {name: more, type: array}, note]\n"
        "commands: [{shell: 'echo ${target} $n'}]\n"
    )

    assert tree(text)["inputs"] == {
        "target": {"type": "string", "description": "where to"},
        "who": {"type": "string"},
        "n": {"type": "number", "default": 3},
        "more": {"type": "array", "default": None},
        "note": {"type": "string", "default": ""},
    }
    assert steps(text)["echo"]["shell"] == "echo ${inputs.target} ${inputs.n}"


def test_parameters_may_stand_under_their_names() -> None:
    found = tree("parameters: {target: {type: any, default: x}}\ncommands: [{shell: make}]\n")

    assert found["inputs"] == {"target": {"type": "any", "default": "x"}}


def test_a_rule_of_a_parameter_that_is_not_known_is_ignored_and_that_is_said(tmp_path: Path) -> None:
    text = "parameters: {n: {type: integer, default: 1, validation: is_prime(n)}}\ncommands: [{claude: '/x ${n}'}]\n"

    assert warnings(text, tmp_path) == ["the rule of the parameter 'n' is not known and is ignored, as in Prodigy"]


# -- conditions ------------------------------------------------------------------------------------------------------


def test_a_step_behind_a_condition_needs_the_last_that_had_none() -> None:
    found = steps(
        "- {id: a, shell: x, capture: v}\n"
        "- {id: b, shell: x, when: '${v}'}\n"
        "- {id: c, shell: x, when: '${v}'}\n"
        "- {id: d, shell: x}\n"
        "- {id: e, shell: x}\n"
    )

    b, c = ({"step": name, "on": "success_or_skipped"} for name in "bc")
    assert {name: step.get("needs") for name, step in found.items()} == {
        "a": None,
        "b": None,
        "c": ["a", b],
        "d": ["a", b, c],
        "e": None,
    }


# -- refusals and warnings -------------------------------------------------------------------------------------------


def test_what_is_not_honoured_is_said_by_name(tmp_path: Path) -> None:
    text = (
        "- {claude: /a, analysis: {max_cache_age: 5}, clear_env: true}\n"
        "- {name: b, options: {fast: true}, metadata: {analysis: {}}}\n"
        "- {shell: make, auto_commit: true, commit_config: {squash: true}}\n"
        "- {claude: '/c ${nobody.knows}'}\n"
    )

    assert warnings(text, tmp_path) == [
        "'analysis' is ignored: Prodigy has removed it",
        "'clear_env' is ignored: a step has the environment of the worker",
        "'options' is ignored: write the options into the arguments",
        "'analysis' is ignored: Prodigy has removed it",
        "'squash' is ignored: the commits of a step are kept as they are",
        "'${nobody.knows}' is not a known variable here and is left as written",
    ]


REFUSED = [
    (
        "commands: [shell: a]\ntasks: [shell: b]\n",
        "error[language.prodigy]: flow.yml:2:1: the workflow has both 'commands' and 'tasks'\n"
        "  2 | tasks: [shell: b]\n"
        "    | ^^^^^ write all steps in one list, 'commands:'",
    ),
    (
        "name: empty\n",
        "error[language.prodigy]: flow.yml:1:1: the workflow has no steps\n"
        "  1 | name: empty\n"
        "    | ^ write all steps in one list, 'commands:'",
    ),
    (
        "parameters: [a]\ncommands: [shell: a]\n",
        "error[language.type]: flow.yml:1:13: 'parameters' is a list, a mapping is expected\n"
        "  1 | parameters: [a]\n"
        "    |             ^",
    ),
    (
        "parameters: {required: [{type: string}]}\ncommands: [shell: a]\n",
        "error[language.missing_key]: flow.yml:1:25: a parameter has no 'name'\n"
        "  1 | parameters: {required: [{type: string}]}\n"
        "    |                         ^",
    ),
    (
        "comands: [shell: a]\n",
        "error[language.unknown_key]: flow.yml:1:1: 'comands' is not a key of the workflow\n"
        "  1 | comands: [shell: a]\n"
        "    | ^^^^^^^ did you mean 'commands'?",
    ),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_a_refusal_says_where_what_and_what_to_do(text: str, said: str, tmp_path: Path) -> None:
    assert refusal(text, tmp_path) == said
