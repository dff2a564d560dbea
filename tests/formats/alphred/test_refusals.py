"""What is refused, word for word: `refusals.txt` has a file and what is said of it, for each code that Alphred has."""

from __future__ import annotations

from pathlib import Path

import pytest

from .reading import edge, failing, node, ours, refusal

CASES = {
    name: tuple(rest.split("--- refused\n"))
    for name, _, rest in (
        case.partition("\n") for case in (Path(__file__).parent / "refusals.txt").read_text().split("=== ")[1:]
    )
}
# Alphred's codes that no file of ours can earn, and why.
MEANINGLESS = {
    "node_name_missing": "a step's description is optional",
    "agent_model_missing": "the provider has a model of its own",
    "agent_model_invalid": "which models there are, the provider knows",
    "execution_permissions_provider_unsupported": "every provider's command can read a variable",
    "no_initial_nodes": "a loop without a beginning starts at its first node",
    "multiple_initial_nodes": "they run one at a time",
    "cycles_present": "a loop is a loop",
    "terminal_node": "every path leads to the end",
}
CODES = """
    no_nodes node_key_missing node_name_missing duplicate_node_key duplicate_node_sequence_index node_type_invalid
    unsupported_node_type node_role_invalid node_role_requires_agent max_children_invalid agent_provider_missing
    agent_provider_invalid agent_model_missing agent_model_invalid agent_prompt_missing
    report_artifact_content_type_invalid execution_permissions_non_agent execution_permissions_provider_unsupported
    execution_permissions_approval_policy_invalid execution_permissions_sandbox_mode_invalid
    execution_permissions_network_access_invalid execution_permissions_additional_directories_invalid
    execution_permissions_web_search_mode_invalid edge_source_missing edge_target_missing transition_priority_invalid
    duplicate_transition_priority auto_edge_has_guard guard_missing guard_invalid failure_route_must_be_auto
    failure_route_has_guard spawner_success_edge_count_invalid spawner_success_target_not_join no_initial_nodes
    multiple_initial_nodes cycles_present terminal_node
""".split()


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_says_where_what_and_what_to_do(case: str):
    written, said = CASES[case]

    assert refusal(written).strip() == said.strip()


def test_each_code_of_alphred_s_is_checked_or_means_nothing_here():
    assert len(CODES) == 38
    assert sorted(CODES) == sorted({*MEANINGLESS, *(code for code in CODES if code in CASES)})


def test_what_means_nothing_here_is_taken():
    nodes = [node("a", 1, model=None, executionPermissions={"sandboxMode": "read-only"}), node("b", 2)]

    found = ours(nodes, [edge("a", "b"), failing("b", "a")])

    assert [step["step"] for step in found["steps"]] == ["a", "b"]


def test_guards_inside_each_other_have_an_end():
    guard = '{"logic": "and", "conditions": [' * 30 + '{"field": "x", "operator": "==", "value": 1}' + "]}" * 30

    said = refusal(
        '{"nodes": [{"nodeKey": "a", "provider": "x", "promptTemplate": {"content": "y"}}], "edges": [\n'
        '{"sourceNodeKey": "a", "targetNodeKey": "a", "guardExpression": ' + guard + "}]}"
    )

    assert said.partition("\n")[0] == (
        "error[language.guard]: w.json:2:737: guards are nested more than 20 levels deep"
    )


@pytest.mark.parametrize("written", ['{"nodes": 5}', '{"nodes": [5, null, []]}', '{"treeKey": {}, "nodes": [{}]}'])
def test_a_file_that_makes_no_sense_is_refused_and_nothing_breaks(written: str):
    assert refusal(written).startswith("error[language.")
