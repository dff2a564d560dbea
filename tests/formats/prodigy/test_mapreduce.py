"""MapReduce: its phases as steps, its map as a map, and what of it is refused or warned about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .whole import refusal, steps, tree, warnings

MAP = "map: {input: items.json, agent_template: [{shell: 'echo ${item}'}]}\n"


def mapped(more: str = "", of_map: str = "") -> dict[str, Any]:
    """The map step of a workflow with these keys at the top and on its map."""
    text = MAP.replace("agent_template", f"{of_map}, agent_template") if of_map else MAP
    found: dict[str, Any] = steps(f"name: work\n{more}{text}")["map"]
    return found


# -- the phases ------------------------------------------------------------------------------------------------------


def test_a_file_with_a_map_is_mapreduce_with_or_without_its_mode() -> None:
    assert tree(MAP) == tree(f"mode: mapreduce\n{MAP}")


def test_the_phases_are_steps_one_after_the_other_in_the_worktree_of_the_run() -> None:
    found = tree(f"name: work\nsetup: [{{shell: a}}]\n{MAP}reduce: {{commands: [{{shell: b}}]}}\n")

    assert found["name"] == "work"
    assert found["order"] == "sequential"
    assert [step["step"] for step in found["steps"]] == ["worktree", "a", "map", "b", "merge"]
    assert found["steps"][1] == {"step": "a", "shell": "a", "cwd": "${any_path(steps.worktree.output.folder)}"}


@pytest.mark.parametrize("word", ["tasks", "commands", "steps"])
def test_a_list_of_steps_beside_the_map_is_its_setup(word: str) -> None:
    assert tree(f"{word}: [{{shell: a}}]\n{MAP}") == tree(f"setup: [{{shell: a}}]\n{MAP}")


def test_an_item_opens_its_worktree_first_and_is_merged_last() -> None:
    calls = "mulligan.formats.prodigy.runtime.added"

    assert mapped()["do"] == [
        {
            "python": {"call": f"{calls}:open_item"},
            "args": {"run": "${steps.worktree.output}", "index": "${index}"},
            "retry": 0,
        },
        {"shell": "echo ${item}", "cwd": "${any_path(outputs[0].folder)}"},
        {
            "python": {"call": f"{calls}:merge_item"},
            "args": {"run": "${steps.worktree.output}", "item": "${outputs[0]}", "result": "${output}"},
            "retry": 0,
        },
    ]


def test_the_list_is_made_by_prodigys_own_rules() -> None:
    keys = "json_path: '$.all[*]', filter: \"n > 1\", sort_by: n DESC, distinct: k, offset: 1, max_items: 5"
    found = mapped(of_map=keys)["map"]

    assert found == {
        "over": {
            "python": {"call": "mulligan.formats.prodigy.runtime:list_items"},
            "args": {
                "input": "items.json",
                "origin": "${steps.worktree.output.checkout}",
                "json_path": "$.all[*]",
                "filter": "n > 1",
                "sort_by": "n DESC",
                "distinct": "k",
            },
            "cwd": "${any_path(steps.worktree.output.folder)}",
        },
        "max_parallel": 10,
        "offset": 1,
        "max_items": 5,
        "on_item_failure": "collect",
    }


def test_the_variables_of_items_and_of_the_map() -> None:
    text = "map: {input: x, agent_template: [claude: '/a ${item.path} ${item_id} ${item.item} ${item_json}']}\n"
    found = steps(f"{text}reduce: [claude: '/b ${{map.successful}} ${{map.total}} ${{map.failed}} ${{map.results}}']\n")

    assert found["map"]["do"][1]["agent"]["prompt"] == (
        "/a ${item.path} ${('item_' + string(index))} ${(type(item) == map ? item.item : item)} ${item}"
    )
    output = "steps.map.output"
    assert found["b"]["agent"]["prompt"] == (
        f"/b ${{{output}.succeeded}} ${{{output}.total}} ${{{output}.failed}} ${{steps.map_results.output}}"
    )


def test_merge_steps_stand_in_the_place_of_ours() -> None:
    text = f"{MAP}merge: {{timeout: 60, commands: [{{shell: 'git push origin ${{merge.source_branch}}'}}]}}\n"

    found = tree(text)["steps"]

    assert [step["step"] for step in found] == ["worktree", "map", "git_push_origin", "close"]
    assert found[2]["shell"] == "git push origin ${steps.worktree.output.branch}"
    assert found[2]["timeout"] == "60s"


# -- setup -----------------------------------------------------------------------------------------------------------


def test_a_number_captures_the_output_of_a_command() -> None:
    found = steps(
        f"setup: {{commands: [{{shell: a}}, {{shell: b}}], capture_outputs: {{x: 1}}}}\n{MAP}"
        "reduce: [{shell: 'echo ${x}'}]\n"
    )

    assert list(found) == ["a", "b", "map", "echo"]
    assert found["echo"]["shell"] == "echo ${steps.b.output}"


def test_more_than_that_is_made_by_a_step_behind_the_setup() -> None:
    found = steps(
        "setup:\n  timeout: $LIMIT\n  commands: [{shell: a, capture: said}]\n"
        "  capture_outputs: {x: {command_index: 0, source: stderr, pattern: '(\\d+)', default: '${a}'}}\n"
        f"env: {{LIMIT: 30}}\n{MAP}reduce: [{{shell: 'echo ${{x}} ${{said}}'}}]\n"
    )

    assert found["a"]["timeout"] == "30s"
    assert found["captured"]["args"] == {
        "outputs": {"x": "${steps.a.output}"},
        "rules": {"x": {"command_index": 0, "source": "stderr", "pattern": "(\\d+)", "default": "$${a}"}},
    }
    assert found["echo"]["shell"] == 'echo ${steps.captured.output["x"]} ${steps.a.output}'


# -- times and numbers -----------------------------------------------------------------------------------------------


def test_a_number_may_be_that_of_a_variable() -> None:
    found = mapped("env: {N: 3, T: '45'}\n", "max_parallel: $N, agent_timeout_secs: '${T}'")

    assert found["map"]["max_parallel"] == 3
    assert found["map"]["item_timeout"] == "45s"


@pytest.mark.parametrize(
    ("policy", "of_item", "of_second"), [("", "50s", None), ("timeout_policy: PerCommand, ", None, "50s")]
)
def test_the_time_of_an_agent_is_that_of_the_item_or_of_each_command(
    policy: str, of_item: str | None, of_second: str | None
) -> None:
    found = steps(
        f"map:\n  input: x\n  timeout_config: {{{policy}agent_timeout_secs: 50, command_timeouts: {{claude: 70}}}}\n"
        "  agent_template: [{shell: a, timeout: 5}, {shell: b}, {claude: /c}]\n"
    )["map"]

    assert found["map"].get("item_timeout") == of_item
    assert [command.get("timeout") for command in found["do"]] == [None, "5s", of_second, "70s", None]


# -- what failures of items mean -------------------------------------------------------------------------------------

POLICIES: dict[str, dict[str, Any]] = {
    "": {"on_item_failure": "collect"},
    "on_item_failure: dlq": {"on_item_failure": "collect"},
    "on_item_failure: skip": {"on_item_failure": "collect"},
    "on_item_failure: stop": {"on_item_failure": "stop"},
    "continue_on_failure: false": {"on_item_failure": "stop"},
    "continue_on_failure: true": {"on_item_failure": "collect"},
    # Theirs stops at so many, ours beyond.
    "max_failures: 3": {"on_item_failure": "stop", "max_failures": 2},
    "failure_threshold: 0.2": {"on_item_failure": "stop", "failure_threshold": 0.2},
    "error_collection: batched:5": {"on_item_failure": "collect"},
}


@pytest.mark.parametrize(("said", "ours"), POLICIES.items())
@pytest.mark.parametrize("form", ["{}\n", "error_policy: {{{}}}\n"])
def test_a_policy_says_what_failed_items_mean_in_either_place(said: str, ours: dict[str, Any], form: str) -> None:
    found = mapped(form.format(said) if said else "")["map"]

    assert {key: found[key] for key in ours} == ours
    assert {"max_failures", "failure_threshold"} & found.keys() == {"max_failures", "failure_threshold"} & ours.keys()


RETRIES: dict[str, Any] = {
    "on_item_failure: retry": {"max_retries": 2, "delay": "1s", "factor": 2.0},
    "retry_config: {max_attempts: 1}": 0,
    "retry_config: {max_attempts: 4, backoff: {fixed: {delay: 5}}}": {"max_retries": 3, "delay": "5s"},
    "retry_config: {max_attempts: 3, backoff: {linear: {initial: 1, increment: 2}}}": {
        "max_retries": 2,
        "delays": ["1s", "3s"],
    },
    "retry_config: {backoff: {exponential: {initial: 500ms, multiplier: 3}}}": {
        "max_retries": 2,
        "delay": "0.5s",
        "factor": 3.0,
    },
    "retry_config: {max_attempts: 5, backoff: {fibonacci: {initial: 2}}}": {
        "max_retries": 4,
        "delays": ["2s", "2s", "4s", "6s"],
    },
}


@pytest.mark.parametrize(("said", "ours"), RETRIES.items())
def test_retries_of_items_are_those_of_their_commands(said: str, ours: Any) -> None:
    assert mapped(f"error_policy: {{{said}}}\n")["retry"] == ours


def test_a_circuit_breaker_guards_the_commands_of_items_and_not_their_worktrees() -> None:
    text = f"name: my work\nerror_policy: {{circuit_breaker: {{failure_threshold: 2, timeout: 10}}}}\n{MAP}"

    assert tree(text)["breakers"] == {"my_work-items": {"failures": 2, "reset": "10s"}}
    assert [command.get("breaker") for command in steps(text)["map"]["do"]] == [None, "my_work-items", None]


# -- what is said ----------------------------------------------------------------------------------------------------


def test_what_is_not_honoured_is_warned_about_by_name(tmp_path: Path) -> None:
    said = warnings(
        "map:\n  input: x\n  agent_template: [{shell: a}]\n"
        "  timeout_config: {timeout_policy: PerAgent, timeout_action: Fail, cleanup_grace_period_secs: 5}\n"
        "error_policy:\n  on_item_failure: stop\n  max_failures: 2\n"
        "  circuit_breaker: {success_threshold: 3, half_open_requests: 2}\n",
        tmp_path,
    )

    assert said == [
        "'timeout_action: Fail' is ignored: a timeout fails its item; use 'max_failures' to fail the map",
        "'cleanup_grace_period_secs' is ignored: a command that timed out has 10s to end",
        "'max_failures' has no effect: the first failure stops the map",
        "'success_threshold' is ignored: one success closes a breaker",
        "'half_open_requests' is ignored: a half-open breaker lets one command through at a time",
    ]


REFUSED = {
    "a filter with a function that there is not": (
        "map: {input: x, filter: 'upper(a) == 1', agent_template: [{shell: a}]}\n",
        "error[language.prodigy]: flow.yml:1:26: there is no function 'upper' in filters\n"
        "  1 | map: {input: x, filter: 'upper(a) == 1', agent_template: [{shell: a}]}\n"
        "    |                          ^^^^^",
    ),
    "a path that leads nowhere": (
        "map: {input: x, json_path: '$.a[', agent_template: [{shell: a}]}\n",
        "error[language.prodigy]: flow.yml:1:32: '[' is not expected in a path\n"
        "  1 | map: {input: x, json_path: '$.a[', agent_template: [{shell: a}]}\n"
        "    |                                ^",
    ),
    "an order that is none": (
        "map: {input: x, sort_by: a UP, agent_template: [{shell: a}]}\n",
        "error[language.prodigy]: flow.yml:1:26: 'a UP' is not a sort order such as 'priority DESC NULLS LAST'\n"
        "  1 | map: {input: x, sort_by: a UP, agent_template: [{shell: a}]}\n"
        "    |                          ^^^^",
    ),
    "a variable that nobody has set": (
        "map: {input: x, max_parallel: $N, agent_template: [{shell: a}]}\n",
        "error[language.prodigy]: flow.yml:1:31: 'max_parallel' is '$N', "
        "but neither 'env' nor the environment has a number with that name\n"
        "  1 | map: {input: x, max_parallel: $N, agent_template: [{shell: a}]}\n"
        "    |                               ^^ add 'env: {N: 5}', or set N: "
        "the number must be known before the run starts",
    ),
    "a policy that stands twice": (
        f"{MAP}max_failures: 1\nerror_policy: {{max_failures: 2}}\n",
        "error[language.prodigy]: flow.yml:2:1: 'max_failures' is also in 'error_policy'\n"
        "  2 | max_failures: 1\n"
        "    | ^^^^^^^^^^^^ remove one of them",
    ),
    "two streams of one command": (
        "setup:\n  commands: [{shell: a}]\n"
        f"  capture_outputs: {{x: 0, y: {{command_index: 0, source: stderr}}}}\n{MAP}",
        "error[language.prodigy]: flow.yml:3:27: 'y' captures stderr of command 0, but 'x' captures its stdout\n"
        "  3 |   capture_outputs: {x: 0, y: {command_index: 0, source: stderr}}\n"
        "    |                           ^ write '2> FILE' in the command, and print the file in a separate command",
    ),
    "a command of the setup that there is not": (
        f"setup: {{commands: [{{shell: a}}], capture_outputs: {{x: 1}}}}\n{MAP}",
        "error[language.prodigy]: flow.yml:1:51: 'x' refers to command 1, but the setup has 1 (counted from 0)\n"
        "  1 | setup: {commands: [{shell: a}], capture_outputs: {x: 1}}\n"
        "    |                                                   ^",
    ),
    "several things at once": (
        "mode: mapreduce\nmap: {inputs: x, max_parallel: 0}\n",
        "error[language.missing_key]: flow.yml:2:6: 'map' has no 'agent_template'\n"
        "  2 | map: {inputs: x, max_parallel: 0}\n"
        "    |      ^ add 'agent_template: …'\n"
        "error[language.unknown_key]: flow.yml:2:7: 'inputs' is not a key of 'map'\n"
        "  2 | map: {inputs: x, max_parallel: 0}\n"
        "    |       ^^^^^^ did you mean 'input'?",
    ),
    "an input that is a list, a backoff without its delay, a collection that nobody knows": (
        "map: {input: [1], agent_template: [{shell: a}]}\n"
        "error_policy: {error_collection: sometimes, retry_config: {backoff: {fixed: {}}}}\n",
        "error[language.type]: flow.yml:1:14: 'input' is a list, a file or a command is expected\n"
        "  1 | map: {input: [1], agent_template: [{shell: a}]}\n"
        "    |              ^\n"
        "error[language.type]: flow.yml:2:34: 'error_collection' is 'sometimes', "
        "aggregate, immediate or batched:N is expected\n"
        "  2 | error_policy: {error_collection: sometimes, retry_config: {backoff: {fixed: {}}}}\n"
        "    |                                  ^^^^^^^^^\n"
        "error[language.missing_key]: flow.yml:2:77: 'fixed' has no 'delay'\n"
        "  2 | error_policy: {error_collection: sometimes, retry_config: {backoff: {fixed: {}}}}\n"
        "    |                                                                             ^ add 'delay: …'",
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_says_where_what_and_what_to_do(text: str, said: str, tmp_path: Path) -> None:
    assert refusal(text, tmp_path) == said


def test_older_files_say_otherwise_how_long_an_agent_may_take_and_how_often_it_is_tried() -> None:
    found = steps(
        "name: x\nmode: mapreduce\n"
        "map: {input: a.json, agent_template: [{shell: make}], timeout_per_agent: 5m, retry_on_failure: 2}\n"
    )["map"]

    assert (found["retry"], found["map"]["item_timeout"]) == (2, "300s")
