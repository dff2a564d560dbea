"""What Prodigy accepts although it does nothing with it: here it is a warning, or the same nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from .whole import steps, tree, warnings

MAP = "mode: mapreduce\nmap: {input: x, agent_template: [{shell: a}]}\n"

WARNED = {
    "a misspelled key": (
        "commands: [{shell: a, on_falure: b}]",
        "'on_falure' is not a key of a step and is ignored",
    ),
    "a key of another system": ("commands: [{shell: a, needs: b}]", "'needs' is not a key of a step and is ignored"),
    "a key of the workflow": (
        "retry_defaults: {attempts: 3}\ncommands: [{shell: a}]",
        "'retry_defaults' is not a key of the workflow and is ignored",
    ),
    "a key of a map": (
        "mode: mapreduce\nmap: {input: x, agent_template: [{shell: a}], checkpoint: 5}",
        "'checkpoint' is not a key of 'map' and is ignored",
    ),
    "a key of a handler": (
        "commands: [{shell: a, on_failure: {claude: /fix, max_attempt: 3}}]",
        "'max_attempt' is not a key of 'on_failure' and is ignored",
    ),
    "a handler without a command": (
        "commands: [{shell: a, on_failure: {strategy: cleanup}}]",
        "'on_failure' has no command: nothing runs, and the failure is ignored",
    ),
    "a handler that is an empty list": (
        "commands: [{shell: a, on_failure: []}]",
        "'on_failure' has no command: nothing runs, and the failure is ignored",
    ),
    "an environment file that does not exist": (
        "env_files: [.env.production]\ncommands: [{shell: a}]",
        "there is no file '.env.production', so it is skipped",
    ),
    "a merge without steps": (f"{MAP}merge: []", "'merge' has no steps: the branch is merged as without it"),
    "an unknown filter": (
        "commands: [{shell: ls, capture: x}, {shell: \"echo '${x|length:100}'\"}]",
        "'${x|length:100}' has a filter that Prodigy does not know (only 'default'), and is left as written",
    ),
}


@pytest.mark.parametrize(("text", "said"), WARNED.values(), ids=WARNED)
def test_what_prodigy_ignores_is_a_warning(text: str, said: str, tmp_path: Path) -> None:
    assert warnings(f"name: x\n{text}\n", tmp_path) == [said]


@pytest.mark.parametrize("key", ["env", "secrets", "env_files", "profiles", "setup", "reduce", "merge", "error_policy"])
def test_a_key_without_a_value_is_like_none(key: str) -> None:
    assert tree(f"{MAP}{key}:\n") == tree(MAP)


def test_lists_of_steps_may_be_empty() -> None:
    assert steps("commands: []\n") == {}
    assert steps("mode: mapreduce\nsetup: []\nmap: {input: x, agent_template: []}\nreduce: []\n").keys() == {"map"}


def test_keys_for_anchors_are_no_mistakes(tmp_path: Path) -> None:
    assert warnings("x-fix: &fix {claude: /fix}\ncommands: [{shell: a, on_failure: *fix}]\n", tmp_path) == []


def test_numbers_may_be_written_as_texts() -> None:
    found = steps(
        "mode: mapreduce\nsetup: {commands: [{id: s, shell: a}], timeout: '30'}\n"
        "map: {input: x, agent_template: [{shell: a, timeout: '5'}], max_parallel: '3', agent_timeout_secs: '60'}\n"
    )

    assert (found["s"]["timeout"], found["map"]["map"]["max_parallel"]) == ("30s", 3)
    assert found["map"]["do"][1]["timeout"] == "5s"


def test_a_check_reads_what_its_step_captured() -> None:
    found = steps("commands: [{id: a, shell: x, capture: n, validate: [{shell: 'test ${n} = ${shell.output}'}]}]\n")[
        "a"
    ]

    assert found["validate"] == {"shell": "test ${output} = ${output}"}


def test_the_old_name_of_the_output_is_known() -> None:
    found = steps(
        "commands:\n  - {id: a, shell: x, capture_output: true, on_failure: {claude: /fix '$CAPTURED_OUTPUT'}}\n"
        "  - {id: b, claude: '/look ${CAPTURED_OUTPUT}'}\n"
    )

    assert found["a"]["on_failure"]["commands"][0]["agent"]["prompt"] == "/fix '${error.message}'"
    assert "steps.a.output" in found["b"]["agent"]["prompt"]


def test_an_unknown_filter_stays_text() -> None:
    found = steps("commands: [{shell: ls, capture: x}, {id: a, shell: \"echo '${x|length:100}'\"}]\n")

    assert found["a"]["shell"] == "echo '${x|length:100}'"


def test_a_number_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKERS", "7")
    text = "mode: mapreduce\nmap: {input: x, agent_template: [{shell: a}], max_parallel: $WORKERS}\n"

    assert steps(text)["map"]["map"]["max_parallel"] == 7
    assert steps(f"env: {{WORKERS: 2}}\n{text}")["map"]["map"]["max_parallel"] == 2


def test_a_handler_without_a_command_may_still_run_the_step_again() -> None:
    found = steps("commands: [{id: a, shell: x, on_failure: {max_retries: 2, fail_workflow: true}}]\n")["a"]

    assert found["on_failure"] == {"commands": [{"shell": "true"}], "rerun": 2}
    assert "continue_on_error" not in found
