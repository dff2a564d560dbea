"""Nodes: the steps that they become, in which order, under which names, and what their agents are asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mulligan.errors import LanguageError
from mulligan.formats.alphred.steps import REPAIR_VISITS_MAX, SUMMARY_PROMPT, VISITS_MAX
from mulligan.formats.alphred.workflow import translate
from mulligan.formats.translation import Translation
from mulligan.language.text.document import parse
from mulligan.language.text.nodes import Source, plain

from .reading import decides, edge, failing, node, ours, step, steps, warnings


def test_a_node_is_an_agent_of_its_provider():
    said = node("draft", displayName="Draft", provider="codex", model="gpt-5-codex", prompt="Write.")

    assert step(said) == {
        "description": "Draft",
        "agent": {"provider": "codex", "model": "gpt-5-codex", "prompt": "Write."},
    }


def test_a_file_is_called_by_its_key_and_described_by_its_name():
    found = ours([node("a")], treeKey="design-tree", name="Design", description="From idea to code")

    assert (found["name"], found["description"]) == ("design-tree", "Design: From idea to code")


def test_nodes_are_in_the_order_in_which_alphred_takes_them_up():
    found = steps([node("c", 30), node("last"), node("a", 10), node("b", 20)])

    assert list(found) == ["a", "b", "c", "last"]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["spell.check", "spell check"], ["spell_check", "spell_check_2"]),
        # the step that ends every run of ours
        (["end"], ["end_2"]),
        (["größe"], ["gr__e"]),
    ],
)
def test_a_key_that_is_no_name_of_a_step_is_made_to_fit_and_stays_in_the_description(keys: list[str], names: list[str]):
    found = steps([node(key, index) for index, key in enumerate(keys)])

    assert {name: said["description"] for name, said in found.items()} == dict(zip(names, keys, strict=True))


def test_what_looks_like_a_value_of_ours_in_a_prompt_stays_text():
    assert step(node("a", prompt="Print ${HOME} and ${steps.b}."))["agent"]["prompt"] == (
        "Print $${HOME} and $${steps.b}."
    )


@pytest.mark.parametrize("kind", ["text", "markdown", "diff", None])
def test_only_json_is_an_answer_of_another_kind(kind: str | None):
    assert "answer" not in step(node("a", reportArtifactContentType=kind))["agent"]


def test_an_answer_in_json_is_asked_for_and_checked():
    found = step(node("a", prompt="Score it.", reportArtifactContentType="json"))

    assert found["agent"] == {
        "provider": "claude",
        "prompt": "Score it.\n\n---\nAnswer with JSON and nothing else, no text before or after it.",
        "answer": "json",
    }


def test_what_only_the_editor_reads_changes_nothing():
    drawn = node("a", position={"x": -3.5, "y": 7}, displayName="", nodeRole="standard", maxChildren=12, nodeType=None)

    assert step(drawn) == step(node("a"))


# -- retries ---------------------------------------------------------------------------------------------------------


def test_without_retries_nothing_is_said_of_them():
    assert "retry" not in step(node("a", maxRetries=0, error_handler_config={"mode": "custom", "prompt": "Why?"}))


@pytest.mark.parametrize(
    ("provider", "model"),
    [("codex", "gpt-5-codex-mini"), ("claude", "claude-3-5-haiku-latest"), ("other", "own")],
)
def test_a_failure_is_summed_up_before_each_retry_by_the_small_model_of_the_provider(provider: str, model: str):
    found = step(node("a", provider=provider, model="own", maxRetries=2, error_handler_config=None))

    assert found["retry"] == {
        "max_retries": 2,
        "recovery_script": {
            "agent": {
                "provider": provider,
                "model": model,
                "prompt": SUMMARY_PROMPT,
                "context": {"node_key": "a", "node_prompt": "do a"},
                "upstream": False,
            }
        },
    }


def test_it_is_not_where_the_node_says_so():
    assert step(node("a", maxRetries=2, error_handler_config={"mode": "disabled"}))["retry"] == 2


def test_who_sums_up_and_how_much_is_told_can_be_said():
    config = {"mode": "custom", "prompt": "Why ${x}?", "model": "haiku", "provider": "other", "maxInputChars": 2_100}

    found = step(node("a", maxRetries=1, prompt="x" * 300, error_handler_config=config))["retry"]["recovery_script"]

    assert found["agent"] == {
        "provider": "other",
        "model": "haiku",
        "prompt": "Why $${x}?",
        "context": {"node_key": "a", "node_prompt": "x" * 50 + "\n[... 200 characters left out ...]\n" + "x" * 50},
        "upstream": False,
    }


def test_a_custom_handler_that_leaves_things_open_has_them_from_the_node():
    found = step(node("a", model="own", maxRetries=1, error_handler_config={"mode": "custom", "prompt": None}))

    agent = found["retry"]["recovery_script"]["agent"]
    assert (agent["provider"], agent["model"], agent["prompt"]) == ("claude", "claude-3-5-haiku-latest", SUMMARY_PROMPT)


# -- permissions -----------------------------------------------------------------------------------------------------

PERMISSIONS = {
    "approvalPolicy": "never",
    "sandboxMode": "read-only",
    "networkAccessEnabled": False,
    "additionalDirectories": ["../a", "/b ${c}"],
    "webSearchMode": "live",
}


def test_permissions_are_variables_of_the_provider_s_command():
    found = step(node("a", provider="codex", executionPermissions=PERMISSIONS))

    assert found["env"] == {
        "ALPHRED_APPROVAL_POLICY": "never",
        "ALPHRED_SANDBOX_MODE": "read-only",
        "ALPHRED_NETWORK_ACCESS": "false",
        "ALPHRED_ADDITIONAL_DIRECTORIES": "../a\n/b $${c}",
        "ALPHRED_WEB_SEARCH_MODE": "live",
    }


@pytest.mark.parametrize("said", [None, {}, {"additionalDirectories": [], "sandboxMode": None}])
def test_permissions_that_say_nothing_are_none(said: Any):
    assert "env" not in step(node("a", executionPermissions=said))
    assert warnings([node("a", executionPermissions=said)]) == []


def test_that_the_command_decides_is_said_once_a_file():
    said = [node("a", executionPermissions=PERMISSIONS), node("b", executionPermissions=PERMISSIONS)]

    assert warnings(said) == [
        "executionPermissions become environment variables: the provider's command decides what the agent may do"
    ]


# -- where it starts, and what is visited again ----------------------------------------------------------------------


def test_one_root_needs_no_word_about_what_runs_at_a_time():
    assert "max_parallel" not in ours([node("a", 1), node("b", 2)], [edge("a", "b")])


def test_several_roots_run_one_at_a_time():
    assert ours([node("a", 1), node("b", 2)])["max_parallel"] == 1


@pytest.mark.parametrize(("named", "start"), [(None, "a"), ([], "a"), (["b"], "b")])
def test_a_loop_without_a_beginning_starts_where_the_file_says_else_at_its_first_node(named: Any, start: str):
    edges = [edge("a", "b"), edge("b", "a", decides("changes_requested"))]

    found = steps([node("a", 1), node("b", 2)], edges, initialRunnableNodeKeys=named)

    assert [name for name, said in found.items() if said.get("start")] == [start]


def test_a_node_that_others_lead_to_is_no_start_whatever_the_file_says():
    said = [node("a", 1), node("b", 2)], [edge("a", "b")]

    found = steps(*said, initialRunnableNodeKeys=["a", "b"])

    assert [name for name, step in found.items() if step.get("start")] == []
    assert warnings(*said, initialRunnableNodeKeys=["a", "b"]) == [
        "'b' does not start immediately: it waits for its incoming edges"
    ]


def test_what_a_loop_may_visit_again_may_be_visited_as_often_as_alphred_takes_any_step():
    nodes = [node(key, index) for index, key in enumerate("abcd")]

    found = steps(nodes, [edge("a", "b"), failing("b", "c"), edge("c", "b"), edge("b", "d")])

    assert {name: said.get("max_visits") for name, said in found.items()} == {
        "a": None,
        "b": VISITS_MAX,
        # a remediation: what it cannot mend must not be tried so often
        "c": REPAIR_VISITS_MAX,
        "d": VISITS_MAX,
    }


def test_a_repair_that_leads_back_to_what_failed_is_announced():
    nodes = [node("a", 1), node("fix", 2), node("b", 3)]
    edges = [failing("a", "fix"), edge("fix", "b"), failing("b", "fix")]

    assert warnings(nodes, edges) == [
        "'fix' repairs a failure and then leads back to what failed; it is visited at most 3 times"
    ]
    assert steps(nodes, edges)["fix"]["max_visits"] == REPAIR_VISITS_MAX


def test_a_repair_that_leads_elsewhere_is_not_bounded():
    nodes = [node("a", 1), node("fix", 2), node("b", 3)]
    edges = [failing("a", "fix"), edge("fix", "b")]

    assert warnings(nodes, edges) == []
    assert "max_visits" not in steps(nodes, edges)["fix"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_loop_in_which_no_edge_has_a_guard_is_refused(count: int):
    nodes = [node(f"n{index}", index) for index in range(count)]
    edges = [edge(f"n{index}", f"n{(index + 1) % count}") for index in range(count)]

    with pytest.raises(LanguageError) as refused:
        ours(nodes, edges)

    assert [problem.code for problem in refused.value.problems] == ["language.endless_loop"]


def test_a_loop_that_a_guard_or_a_person_may_leave_is_taken():
    nodes = [node("a", 1), node("b", 2, nodeType="human"), node("c", 3)]

    found = steps(nodes, [edge("a", "b"), edge("b", "a")])
    left = steps(nodes, [edge("a", "c", decides("approved"), priority=1), edge("a", "a", priority=2)])

    assert [found["b"]["next"], left["a"]["take"]] == ["a", "first"]


def test_a_node_may_lead_to_itself():
    said = steps([node("a")], [edge("a", "a", {"field": "decision", "operator": "==", "value": "retry"})])["a"]

    assert (said["start"], said["max_visits"]) == (True, VISITS_MAX)


def test_a_chain_of_a_thousand_nodes_is_read():
    nodes = [node(f"n{index}", index) for index in range(1_000)]

    found = steps(nodes, [edge(f"n{index}", f"n{index + 1}") for index in range(999)])

    assert (len(found), found["n998"]["next"]) == (1_000, "n999")


# -- phases ----------------------------------------------------------------------------------------------------------


def of_phases(*phases: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The steps of a file in the older form."""
    source = Source(json.dumps({"name": "w", "version": "1.0", "phases": phases}), "w.json")
    found = plain(translate(parse(source), Translation(source)))
    assert found.keys() == {"name", "steps"} and not source.problems
    return {said.pop("step"): said for said in found["steps"]}


def phase(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "type": "agent", "provider": "claude", "prompt": f"do {name}", **fields}


def test_phases_of_which_none_says_what_follows_follow_each_other():
    found = of_phases(phase("b"), phase("a"), phase("c"))

    assert [(name, said.get("next")) for name, said in found.items()] == [("b", "a"), ("a", "c"), ("c", None)]


def test_phases_may_say_what_follows():
    found = of_phases(
        phase("a", transitions=[{"target": "c"}, {"target": "b", "routeOn": "failure"}]),
        phase("b", transitions=[]),
        phase("c", transitions=[{"target": "a", "when": {"field": "decision", "operator": "==", "value": "retry"}}]),
    )

    assert found["a"]["next"] == ["c", {"to": "b", "on": "failure"}]
    assert "next" not in found["b"]
    assert found["c"]["next"][0] == {"to": "a", "when": 'output.decision == "retry"'}


def test_a_phase_has_a_model_and_retries_as_a_node_has():
    found = of_phases(phase("a", model="haiku", maxRetries=1))["a"]

    assert (found["agent"]["model"], found["retry"]["max_retries"]) == ("haiku", 1)


def test_a_phase_may_be_a_person_s():
    assert of_phases({"name": "sign", "type": "human", "prompt": "Go on?"})["sign"]["approve"] == {"message": "Go on?"}
