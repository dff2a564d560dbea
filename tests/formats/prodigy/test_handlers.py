"""Every form of `on_failure`, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.nightly import sample

from mulligan.formats import examine
from mulligan.formats.prodigy.context import StepSlots

from .reading import UNASKED, context, item_commands, step, steps
from .whole import tree

AGENT = {"agent": {"provider": "claude", "prompt": "/fix", **UNASKED}}
ECHO = {"shell": "echo no"}

# In a list of a regular workflow: the handler, and whether the workflow goes on.
FORMS: list[tuple[str, dict[str, Any] | None, bool]] = [
    ("true", None, True),
    ("false", None, False),
    ("echo no", {"commands": [ECHO]}, False),
    ("/fix", {"commands": [AGENT]}, False),
    ("[echo no, /fix]", {"commands": [ECHO, AGENT]}, False),
    ("[{shell: echo no}, {claude: /fix}]", {"commands": [ECHO, AGENT]}, False),
    # a plain handler does the step's work
    ("{shell: echo no}", {"commands": [ECHO]}, False),
    ("{shell: echo no, claude: /fix}", {"commands": [ECHO, AGENT]}, False),
    ("{shell: echo no, fail_workflow: false}", {"commands": [ECHO]}, True),
    # Claude's: three attempts
    ("{claude: /fix}", {"commands": [AGENT], "rerun": 2}, True),
    ("{claude: /fix, fail_workflow: true}", {"commands": [AGENT], "rerun": 2}, False),
    ("{claude: /fix, max_attempts: 5}", {"commands": [AGENT], "rerun": 4}, True),
    ("{claude: /fix, max_attempts: 1}", {"commands": [AGENT]}, False),
    ("{claude: /fix, retry_original: false}", {"commands": [AGENT]}, False),
    ("{shell: echo no, max_attempts: 2}", {"commands": [ECHO], "rerun": 1}, True),
    ("{shell: echo no, max_retries: 2}", {"commands": [ECHO], "rerun": 2}, True),
    ("{shell: echo no, retry_original: true}", {"commands": [ECHO], "rerun": 1}, True),
    # the detailed form
    ("{commands: [echo no]}", {"commands": [ECHO]}, False),
    ("{commands: echo no}", {"commands": [ECHO]}, False),
    ("{commands: [{shell: echo no}], strategy: recovery}", {"commands": [ECHO]}, False),
    ("{commands: [{shell: echo no}], strategy: custom}", {"commands": [ECHO]}, False),
    ("{commands: [{shell: echo no}], strategy: fallback}", {"commands": [ECHO], "strategy": "fallback"}, False),
    ("{commands: [{shell: echo no}], strategy: cleanup}", {"commands": [ECHO], "strategy": "cleanup"}, False),
    (
        "{commands: [{shell: echo no}], strategy: cleanup, fail_workflow: false}",
        {"commands": [ECHO], "strategy": "cleanup"},
        True,
    ),
    (
        "{commands: [{shell: echo no, continue_on_error: true}, /fix], timeout: 60, handler_failure_fatal: true}",
        {
            "commands": [{**ECHO, "continue_on_error": True}, AGENT],
            "timeout": "60s",
            "handler_failure_fatal": True,
        },
        False,
    ),
    # handlers nest
    (
        "{commands: [{shell: echo no, on_failure: {shell: echo no, on_failure: /fix}}]}",
        {"commands": [{**ECHO, "on_failure": {"commands": [{**ECHO, "on_failure": {"commands": [AGENT]}}]}}]},
        False,
    ),
    ("{fail_workflow: false}", None, True),
    ("{fail_workflow: true}", None, False),
]


@pytest.mark.parametrize(("form", "handler", "goes_on"), FORMS)
def test_a_handler_becomes_one_of_ours(form: str, handler: dict[str, Any] | None, goes_on: bool) -> None:
    found = step(f"- {{shell: make, on_failure: {form}}}")

    assert (found.get("on_failure"), found.get("continue_on_error", False)) == (handler, goes_on)


# The same where it is no regular workflow.
ELSEWHERE: list[tuple[str, dict[str, Any], bool]] = [
    ("{claude: /fix}", {"commands": [AGENT]}, False),
    ("{claude: /fix, max_attempts: 3}", {"commands": [AGENT], "rerun": 2}, True),
]


@pytest.mark.parametrize(("form", "handler", "goes_on"), ELSEWHERE)
def test_outside_of_regular_workflows_a_plain_handler_runs_once(
    form: str, handler: dict[str, Any], goes_on: bool
) -> None:
    (found,) = steps(f"- {{shell: make, on_failure: {form}}}", context(StepSlots()))

    assert (found["on_failure"], found.get("continue_on_error", False)) == (handler, goes_on)


IN_ITEMS: list[tuple[str, dict[str, Any], bool]] = [
    ("{claude: /fix}", {"commands": [AGENT]}, False),
    ("{claude: /fix, max_attempts: 3}", {"commands": [AGENT], "rerun": 2}, False),
    ("{claude: /fix, max_attempts: 3, fail_workflow: false}", {"commands": [AGENT], "rerun": 2}, True),
]


@pytest.mark.parametrize(("form", "handler", "goes_on"), IN_ITEMS)
def test_in_an_item_what_still_fails_fails_the_item(form: str, handler: dict[str, Any], goes_on: bool) -> None:
    (found,) = item_commands(f"- {{shell: make, on_failure: {form}}}")

    assert (found["on_failure"], found.get("continue_on_error", False)) == (handler, goes_on)


# Where a step may stand, as a file: STEP is the step, with its handler.
EVERYWHERE = [
    "[STEP]",
    "commands: [STEP]",
    "steps: [STEP]",
    "tasks: [STEP]",
    "commands: [{foreach: [a], do: [STEP]}]",
    "commands: [{shell: a, on_failure: {commands: [STEP]}}]",
    "commands: [{shell: a, on_success: [STEP]}]",
    "{commands: [{shell: a}], merge: [STEP]}",
    "{setup: [STEP], map: {input: x, agent_template: [{shell: a}]}}",
    "map: {input: x, agent_template: [STEP]}",
    "map: {input: x, agent_template: {commands: [STEP]}}",
    "{mode: mapreduce, map: {input: x, agent_template: [{shell: a}]}, reduce: [STEP]}",
    "{map: {input: x, agent_template: [{shell: a}]}, merge: {commands: [STEP]}}",
]
# On the step, and alone behind it.
WAYS = ["{shell: make, on_failure: FORM}", "{shell: make}, {on_failure: FORM}"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", sample(EVERYWHERE, 5))
def test_every_form_may_stand_in_every_place(place: str, way: str, tmp_path: Path) -> None:
    for form, handler, _ in FORMS:
        text = place.replace("STEP", way.replace("FORM", form))
        (tmp_path / "flow.yml").write_text(text)

        examine(tmp_path / "flow.yml", named="prodigy")

        (found,) = made_of_make(tree(text))
        assert found.get("on_failure", {}).get("commands") == (handler or {}).get("commands"), text


def made_of_make(node: Any) -> list[dict[str, Any]]:
    """Every step or command of ours in a tree that runs `make`."""
    if isinstance(node, list):
        return [found for each in node for found in made_of_make(each)]
    if not isinstance(node, dict):
        return []
    return [node] if node.get("shell") == "make" else made_of_make(list(node.values()))


def test_a_text_in_a_handler_is_the_shells_whatever_stands_behind_it() -> None:
    _, found, *_ = steps(
        "- {shell: make, on_failure: [echo no, {on_failure: echo no}]}\n- shell: echo ${step.files_added}\n"
    )

    assert found["on_failure"] == {"commands": [{**ECHO, "on_failure": {"commands": [ECHO]}}]}


def test_a_handler_knows_the_error_under_its_names() -> None:
    names = "${error.message} ${error.exit_code} ${error.step} ${error.timestamp} ${test.exit_code} ${test.attempt}"
    found = step(f"- {{shell: make, on_failure: 'echo {names}'}}")

    ours = "${error.message} ${error.exit_code} ${error.step} ${error.timestamp} ${error.exit_code} ${error.attempt}"
    assert found["on_failure"] == {"commands": [{"shell": f"echo {ours}"}]}


def test_a_command_whose_handler_reads_its_output_puts_it_at_the_end_of_its_errors() -> None:
    found = step("- {shell: make test, on_failure: {claude: '/fix ${shell.output}'}}")

    assert found["shell"] == (
        "_said=$(\nmake test\n)\n_code=$?\nprintf '%s\\n' \"$_said\"\n"
        "[ $_code -eq 0 ] || printf '%s\\n' \"$_said\" >&2\nexit $_code"
    )
    assert found["on_failure"]["commands"][0]["agent"]["prompt"] == "/fix ${error.message}"


def test_what_a_handler_captures_is_known_after_the_step() -> None:
    found = steps(
        "- {id: a, shell: make, on_failure: {commands: [echo hi], capture: {how: output, why: '${error.message}'}}}\n"
        "- claude: /tell ${how} ${why}\n"
    )

    said = "(type(output) == map && has(output.content) ? output.content : output)"
    assert found[0]["on_failure"]["capture"] == {"how": said, "why": "error.message"}
    how, why = (f"(type(steps.a.output) == map ? steps.a.output.{name} : null)" for name in ("how", "why"))
    assert found[1]["agent"]["prompt"] == f"/tell ${{{how}}} ${{{why}}}"


def test_a_handler_that_must_commit_is_asked_for_it() -> None:
    found = step("- {shell: make, on_failure: {claude: /fix, commit_required: true}}")

    before, agent, check = found["on_failure"]["commands"]
    assert agent == AGENT
    assert before["shell"].endswith('> "$(git rev-parse --git-dir)/prodigy-head-1-29"')
    assert check["shell"].endswith("{ echo 'the handler made no commit' >&2; exit 1; }")


def test_a_handler_reads_what_the_step_would_have_captured() -> None:
    found = step("- {shell: make, capture_output: said, on_failure: {shell: 'echo ${said}'}}")

    assert found["shell"].startswith("_said=$(\nmake\n)")
    assert found["on_failure"] == {"commands": [{"shell": "echo ${error.message}"}]}


def test_what_a_handler_does_behind_its_command_is_part_of_it() -> None:
    found = step("- {shell: make, on_failure: {claude: /fix, on_success: {shell: make, on_failure: echo no}}}")

    assert found["on_failure"]["commands"] == [AGENT, {"shell": "make", "on_failure": {"commands": [ECHO]}}]
