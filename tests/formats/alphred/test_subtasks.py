"""Spawners and joins: the steps that they become, what an answer has to be, and what the join is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

import mulligan
from mulligan.formats.alphred import subtasks
from mulligan.formats.alphred.subtasks import (
    PREVIEW_CHARS_MAX,
    ROWS_CHARS_MAX,
    check_answer,
    list_subtasks,
    summarize_subtasks,
)
from mulligan.plugins import MOVED_CALLS

from .reading import edge, failing, node, ours, steps

TASK = {"title": "Docs", "prompt": "Write the docs."}


def fan_out(**fields: Any) -> dict[str, dict[str, Any]]:
    nodes = [node("split", 1, nodeRole="spawner", **fields), node("merge", 2, nodeRole="join"), node("fix", 3)]
    return steps(nodes, [edge("split", "merge"), failing("split", "fix")])


# -- the steps -------------------------------------------------------------------------------------------------------


def test_a_spawner_leads_to_its_subtasks_and_they_to_what_the_join_is_told():
    found = fan_out()

    assert {name: said.get("next") for name, said in found.items()} == {
        "split": ["split_subtasks", {"to": "fix", "on": "failure"}],
        "split_subtasks": "split_summary",
        "split_summary": "merge",
        "merge": None,
        "fix": None,
    }


def test_a_spawner_is_told_how_to_list_its_subtasks_and_its_answer_is_checked():
    found = fan_out(maxChildren=3)["split"]

    assert "\nIt has from 0 to 3 subtasks, " in found["agent"]["prompt"]
    assert found["agent"]["answer"] == "json"
    assert found["validate"] == {
        "python": {"call": "mulligan.formats.alphred.subtasks:check_answer"},
        "args": {"answer": "${output.json}", "most": 3, "taken": ["split", "merge", "fix"]},
    }


def test_without_a_word_there_are_twelve_subtasks_at_most():
    assert fan_out()["split"]["validate"]["args"]["most"] == 12


def test_subtasks_run_one_after_the_other_as_the_spawner_would():
    found = fan_out(provider="codex", model="big", maxRetries=2, executionPermissions={"sandboxMode": "read-only"})

    subtasks = found["split_subtasks"]
    assert {key: subtasks["map"][key] for key in ("as", "max_parallel", "on_item_failure")} == {
        "as": "subtask",
        "max_parallel": 1,
        "on_item_failure": "collect",
    }
    [command] = subtasks["do"]
    assert command["agent"] == {
        "provider": "${subtask.provider}",
        "model": "${subtask.model}",
        "prompt": "${subtask.prompt}",
        "upstream": False,
    }
    assert command["retry"]["max_retries"] == 2
    assert command["retry"]["recovery_script"]["agent"]["context"]["node_prompt"] == "${subtask.prompt}"
    assert command["env"] == {"ALPHRED_SANDBOX_MODE": "read-only"}


def test_a_join_is_told_of_every_spawner_that_leads_to_it():
    nodes = [node("a-b", 1, nodeRole="spawner"), node("c", 2, nodeRole="spawner"), node("merge", 3, nodeRole="join")]

    found = steps(nodes, [edge("a-b", "merge"), edge("c", "merge")])["merge"]["agent"]

    assert found["context"] == '${steps["a-b_summary"].output}\n\n${steps.c_summary.output}'
    assert found["upstream"] is False


def test_a_join_that_others_lead_to_as_well_is_told_what_all_of_them_gave():
    nodes = [node("split", 1, nodeRole="spawner"), node("merge", 2, nodeRole="join"), node("other", 3)]

    found = steps(nodes, [edge("split", "merge"), edge("other", "merge")])["merge"]["agent"]

    assert found.keys() == {"provider", "prompt"}


def test_a_spawner_that_fails_may_lead_straight_to_its_join():
    nodes = [node("split", 1, nodeRole="spawner"), node("merge", 2, nodeRole="join")]

    found = steps(nodes, [edge("split", "merge"), failing("split", "merge")])["split"]

    assert found["next"] == ["split_subtasks", {"to": "merge", "on": "failure"}]


def test_the_steps_of_a_spawner_take_no_name_from_a_node():
    nodes = [node("a", 1, nodeRole="spawner"), node("a_summary", 2, nodeRole="join"), node("a_subtasks", 3)]

    found = ours(nodes, [edge("a", "a_summary")])["steps"]

    assert [said["step"] for said in found] == ["a", "a_subtasks_2", "a_summary_2", "a_summary", "a_subtasks"]


def test_a_spawner_that_is_visited_again_lists_again():
    nodes = [node("split", 1, nodeRole="spawner"), node("merge", 2, nodeRole="join")]
    again = {"field": "decision", "operator": "==", "value": "retry"}

    found = steps(nodes, [edge("split", "merge"), edge("merge", "split", again)])

    assert {said.get("max_visits") for said in found.values()} == {1000}


# -- the answer ------------------------------------------------------------------------------------------------------


def answer(*subtasks: Any, **fields: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, "subtasks": list(subtasks), **fields}


@pytest.mark.parametrize(
    "said",
    [
        answer(),
        answer(TASK),
        answer({**TASK, "nodeKey": "x", "provider": "claude", "model": "big", "metadata": {"any": [1]}}),
        answer({**TASK, "nodeKey": None, "provider": None, "model": None}),
        answer(TASK, TASK, TASK),
        # what is not ours to judge
        answer(note="beside"),
    ],
)
def test_a_list_of_subtasks_is_an_answer(said: Any):
    check_answer(said, 3, ["split"])


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (None, 'the answer is not an object such as {"schemaVersion": 1, "subtasks": []}'),
        ([], 'the answer is not an object such as {"schemaVersion": 1, "subtasks": []}'),
        ({"subtasks": []}, "'schemaVersion' is not 1"),
        (answer(schemaVersion=2), "'schemaVersion' is not 1"),
        (answer(schemaVersion=True), "'schemaVersion' is not 1"),
        ({"schemaVersion": 1}, "'subtasks' is not a list"),
        ({"schemaVersion": 1, "subtasks": {"a": TASK}}, "'subtasks' is not a list"),
        (answer(TASK, TASK, TASK, TASK), "there are 4 subtasks, but at most 3 are allowed"),
        (answer(TASK, "docs"), "subtask 2 is not an object"),
        (answer({"title": "Docs"}), "subtask 1 has no 'prompt'"),
        (answer({**TASK, "title": " "}), "subtask 1 has no 'title'"),
        (answer({**TASK, "prompt": 7}), "subtask 1 has no 'prompt'"),
        (answer({**TASK, "model": ["big"]}), "'model' of subtask 1 is not a text"),
        (answer({**TASK, "nodeKey": ""}), "'nodeKey' of subtask 1 is not a text"),
        (answer({**TASK, "nodeRole": "spawner"}), "subtask 1 has 'nodeRole', which is not a key of a subtask"),
        (answer({**TASK, "nodeKey": "a"}, {**TASK, "nodeKey": "a"}), "the nodeKey 'a' is already used"),
        (answer({**TASK, "nodeKey": "split"}), "the nodeKey 'split' is already used"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(said: Any, problem: str):
    with pytest.raises(mulligan.StepError) as refused:
        check_answer(said, 3, ["split"])

    assert (refused.value.code, refused.value.message) == (
        "SPAWNER_OUTPUT_INVALID",
        f"SPAWNER_OUTPUT_INVALID: {problem}",
    )


def test_what_a_subtask_does_not_say_is_the_spawner_s():
    found = list_subtasks(answer(TASK, {**TASK, "nodeKey": "x", "model": "small"}), "split", 2, "codex", "big")

    assert [(one["nodeKey"], one["provider"], one["model"]) for one in found] == [
        ("split__2__1", "codex", "big"),
        ("x", "codex", "small"),
    ]


def test_the_model_of_the_spawner_is_none_of_another_provider():
    [found] = list_subtasks(answer({**TASK, "provider": "claude"}), "split", 1, "codex", "big")

    assert (found["provider"], found["model"]) == ("claude", "")


# -- what the join is told -------------------------------------------------------------------------------------------


def outcome(*results: str | None) -> dict[str, Any]:
    """What a map of subtasks gives: an answer each, None for one that failed."""
    failures = [
        {"index": index, "item": {}, "code": "EXIT_NONZERO", "message": f"broken {index}", "exit_code": 1}
        for index, said in enumerate(results)
        if said is None
    ]
    return {
        "total": len(results),
        "succeeded": len(results) - len(failures),
        "failed": len(failures),
        "results": [None if said is None else {"content": said, "decision": None, "tokens": None} for said in results],
        "failures": failures,
    }


def told_of(*results: str | None) -> str:
    return summarize_subtasks(answer(*[TASK] * len(results)), "split", 1, outcome(*results))


def test_the_join_is_told_of_each_subtask_and_what_it_said_those_that_failed_first():
    assert told_of("one\nline", None, "three") == (
        "subtasks.total: 3\n"
        "subtasks.terminal: 3\n"
        "subtasks.succeeded: 2\n"
        "subtasks.failed: 1\n"
        "subtask_rows:\n"
        "- node_key: split__1__1; status: completed; preview: one line\n"
        "- node_key: split__1__2; status: failed; preview: EXIT_NONZERO: broken 1\n"
        "- node_key: split__1__3; status: completed; preview: three\n"
        "\n"
        "report of split__1__2 (failed):\n"
        "EXIT_NONZERO: broken 1\n"
        "\n"
        "report of split__1__3 (completed):\n"
        "three\n"
        "\n"
        "report of split__1__1 (completed):\n"
        "one\nline"
    )


def test_where_there_was_nothing_to_do_the_join_is_told_that():
    assert told_of() == (
        "subtasks.total: 0\nsubtasks.terminal: 0\nsubtasks.succeeded: 0\nsubtasks.failed: 0\nsubtask_rows:\n"
    )


def test_what_the_join_is_told_is_bounded():
    text = told_of(*["x" * 20_000] * 12)

    rows, _, reports = text.partition("\n\nreport of ")
    assert len(rows.splitlines()[5]) <= len("- node_key: split__1__1; status: completed; preview: ") + PREVIEW_CHARS_MAX
    assert text.count("report of ") == 2
    assert reports.count("x") == 24_000


def test_many_rows_are_cut_in_the_middle():
    text = told_of(*["x" * 200] * 60)

    rows = text.partition("subtask_rows:\n")[2].partition("\n\nreport of")[0]
    assert "characters left out ...]" in rows
    assert ROWS_CHARS_MAX <= len(rows) < ROWS_CHARS_MAX + 60


def test_what_is_told_is_text_that_a_step_can_give():
    assert json.loads(json.dumps(told_of("é\u2028"))).endswith("é\u2028")


# -- stored runs and converted files ---------------------------------------------------------------------------------


def test_the_former_names_of_the_functions_still_work() -> None:
    former = [f"{subtasks.__name__}:{name}" for name in ("check", "listed", "told")]

    functions = [getattr(subtasks, MOVED_CALLS[name].partition(":")[2]) for name in former]

    assert functions == [check_answer, list_subtasks, summarize_subtasks]
