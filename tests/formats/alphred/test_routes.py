"""Edges: one of them is taken, and what it means that none fits."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.workflow import Expression
from mulligan.language.expressions import Cel

from .reading import decides, edge, failing, node, step, steps, warnings

BOTH = [node("review", 1), node("fix", 2), node("publish", 3)]
CHANGES, APPROVED = decides("changes_requested"), decides("approved")
IS_CHANGES, IS_APPROVED = 'output.decision == "changes_requested"', 'output.decision == "approved"'


def review(*edges: dict[str, Any]) -> dict[str, Any]:
    return steps(BOTH, list(edges))["review"]


def choice(*edges: dict[str, Any]) -> tuple[Any, ...]:
    """What the step says of its edges."""
    found = review(*edges)
    return found.get("next"), found.get("take"), found.get("no_match"), found.get("validate")


def test_a_node_without_edges_says_nothing():
    assert choice() == (None, None, None, None)


def test_an_edge_that_is_always_taken_is_a_name():
    assert choice(edge("review", "publish")) == ("publish", None, None, None)


def test_the_first_by_priority_whose_guard_holds_is_taken():
    found = choice(
        edge("review", "publish", priority=9),
        edge("review", "fix", CHANGES, priority=3),
    )

    assert found == ([{"to": "fix", "when": IS_CHANGES}, "publish"], "first", None, None)


def test_approved_ends_the_path_well_where_no_edge_asks_for_it():
    """The template that comes with Alphred: there the run of an approved change fails."""
    found = choice(edge("review", "fix", CHANGES))

    assert found == (
        [{"to": "fix", "when": IS_CHANGES}, {"to": "end", "when": IS_APPROVED}],
        "first",
        "fail",
        "output.decision != null",
    )


def test_where_an_edge_asks_for_it_that_is_where_it_leads():
    found = choice(edge("review", "fix", CHANGES, priority=1), edge("review", "publish", APPROVED, priority=2))

    assert found[0] == [{"to": "fix", "when": IS_CHANGES}, {"to": "publish", "when": IS_APPROVED}]


def test_an_agent_is_told_which_words_there_are():
    found = review(edge("review", "fix", CHANGES))["agent"]["prompt"]

    assert found == (
        "do review\n\n"
        "---\n"
        "What follows depends on your decision. Say it in the last line of your answer, with nothing after it, as\n"
        "decision: WORD\n"
        "where WORD is one of\n"
        "- changes_requested\n"
        "- approved: the work is done and correct\n"
        "- blocked: you cannot continue, and a person has to look at it"
    )


def test_an_agent_of_whom_any_other_word_is_asked_is_told_which_those_are():
    found = review(edge("review", "fix", {**APPROVED, "operator": "!="}))["agent"]["prompt"]

    assert found.endswith(
        "\nwhere WORD is one of\n"
        "- changes_requested\n"
        "- retry\n"
        "- approved: the work is done and correct\n"
        "- blocked: you cannot continue, and a person has to look at it"
    )


def test_an_agent_that_need_not_decide_is_told_so():
    found = review(edge("review", "fix", CHANGES, priority=1), edge("review", "publish", priority=2))["agent"]["prompt"]

    assert found.endswith("\nIf none of them fits, say none.")


def test_an_agent_on_whose_decision_nothing_depends_is_told_nothing():
    score = {"field": "score", "operator": ">", "value": 5}

    assert review(edge("review", "fix", score))["agent"]["prompt"] == "do review"
    assert choice(edge("review", "fix", score))[2:] == ("fail", None)


HIGH = {"field": "score", "operator": ">", "value": 5}


@pytest.mark.parametrize(
    ("guards", "has_to_decide"),
    [
        ([CHANGES], True),
        ([CHANGES, APPROVED], True),
        # there is a way on without a decision
        ([CHANGES, HIGH], False),
        ([{"logic": "or", "conditions": [CHANGES, HIGH]}], False),
        ([{"logic": "and", "conditions": [CHANGES, HIGH]}], True),
        ([{"logic": "or", "conditions": [CHANGES, APPROVED]}], True),
    ],
)
def test_a_decision_has_to_be_there_only_where_every_way_on_asks_for_one(guards: list[Any], has_to_decide: bool):
    targets = ["fix", "publish"]

    found = review(*(edge("review", targets[index], guard, priority=index) for index, guard in enumerate(guards)))

    assert ("validate" in found, found["no_match"]) == (has_to_decide, "fail")
    assert found["agent"]["prompt"].endswith("\nIf none of them fits, say none.") is not has_to_decide


def test_two_edges_may_lead_to_one_node():
    found = choice(edge("review", "fix", CHANGES, priority=1), edge("review", "fix", decides("retry"), priority=2))

    assert [one["to"] for one in found[0]] == ["fix", "fix", "end"]


def test_failure_edges_come_after_the_others_by_their_priority():
    found = choice(failing("review", "publish", 7), failing("review", "fix", 2), edge("review", "publish"))

    assert found[0] == ["publish", {"to": "fix", "on": "failure"}, {"to": "publish", "on": "failure"}]


def test_an_edge_behind_one_that_is_always_taken_stays_and_that_it_is_never_taken_is_said():
    """Without it nobody would lead to its target, which would start at once."""
    said = [edge("review", "publish", priority=1), edge("review", "fix", CHANGES, priority=2)]

    assert choice(*said) == (["publish", {"to": "fix", "when": IS_CHANGES}], "first", None, None)
    assert review(*said)["agent"]["prompt"] == "do review"
    assert warnings(BOTH, said) == [
        "the edge from 'review' to 'fix' is never taken: the one to 'publish' has no guard and comes first"
    ]


# -- guards ----------------------------------------------------------------------------------------------------------


def holds(guard: Any, output: dict[str, Any], **fields: Any) -> bool:
    """Whether an edge with the guard is taken after such an answer."""
    nodes = [node("review", 1, **fields), node("fix", 2)]
    found = steps(nodes, [edge("review", "fix", guard)])["review"]["next"]
    condition = found[0]["when"]
    return Cel().condition(Expression(condition, ("output",)), {"output": output})


def on(field: str, operator: str, value: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


@pytest.mark.parametrize(
    ("guard", "decision", "is_taken"),
    [
        (on("decision", "==", "approved"), "approved", True),
        (on("decision", "==", "approved"), "Approved", False),
        (on("decision", "==", "approved"), None, False),
        (on("decision", "!=", "approved"), "blocked", True),
        (on("decision", "!=", "approved"), "approved", False),
        # no decision satisfies no guard
        (on("decision", "!=", "approved"), None, False),
        (on("decision", "!=", 5), None, False),
        # strictly: a word is no number
        (on("decision", "==", 5), "5", False),
        (on("decision", "!=", 5), "5", True),
        (on("decision", "==", True), "true", False),
        # quotes and line breaks in a word
        (on("decision", "==", 'a "b"\\\n'), 'a "b"\\\n', True),
        ({"logic": "or", "conditions": [decides("a"), decides("b")]}, "b", True),
        ({"logic": "and", "conditions": [decides("a", "!="), decides("b", "!=")]}, "b", False),
        ({"logic": "and", "conditions": [decides("a", "!="), decides("b", "!=")]}, "c", True),
        ({"logic": "and", "conditions": [decides("b")]}, "b", True),
        (
            {
                "logic": "and",
                "conditions": [decides("a", "!="), {"logic": "or", "conditions": [decides("b"), CHANGES]}],
            },
            "changes_requested",
            True,
        ),
    ],
)
def test_a_guard_on_the_decision_is_strict(guard: Any, decision: str | None, is_taken: bool):
    assert holds(guard, {"content": "", "decision": decision, "tokens": None}) is is_taken


@pytest.mark.parametrize(
    ("guard", "said", "is_taken"),
    [
        (on("report.score", ">=", 80), {"score": 80}, True),
        (on("report.score", ">=", 80), {"score": 80.5}, True),
        (on("report.score", ">", 80), {"score": 80}, False),
        (on("report.score", "<", 0.5), {"score": 0}, True),
        (on("report.score", "<=", 80), {"score": "79"}, False),
        (on("report.score", "<=", 80), {"score": True}, False),
        (on("report.score", "==", 80), {"score": 80.0}, True),
        (on("report.score", "==", "80"), {"score": 80}, False),
        # without the first word, too
        (on("score", "==", 80), {"score": 80}, True),
        # what is not there satisfies nothing, whatever is there in its place
        (on("report.score", "!=", 80), {}, False),
        (on("report.score", "!=", 80), [80], False),
        (on("report.score", "!=", 80), None, False),
        (on("report.a.b", "==", 1), {"a": {"b": 1}}, True),
        (on("report.a.b", "==", 1), {"a": [1]}, False),
        # words of the language that conditions are written in
        (on("report.in.loop.true", "==", 1), {"in": {"loop": {"true": 1}}}, True),
        (on("report.a-b.c d", "==", None), {"a-b": {"c d": None}}, True),
    ],
)
def test_a_guard_may_ask_for_what_the_answer_says_in_json(guard: Any, said: Any, is_taken: bool):
    answer = {"content": "", "decision": None, "tokens": None, "json": said}

    assert holds(guard, answer, reportArtifactContentType="json") is is_taken


@pytest.mark.parametrize(
    ("output", "is_taken"), [({"report": {"score": 9}}, True), ({"report": 9}, False), ({"content": "9"}, False)]
)
def test_of_an_answer_that_is_no_json_it_may_ask_for_what_the_agent_wrote_beside_it(output: Any, is_taken: bool):
    assert holds(on("report.score", ">", 5), output) is is_taken


@pytest.mark.parametrize(
    ("guard", "said"),
    [
        (on("decision", ">", "a"), "this guard is never true: a decision is a word, and only numbers can be ordered"),
        (on("score", ">", "5"), """this guard is never true: '>' compares numbers, and "5" is not a number"""),
        (on("score", "<=", None), "this guard is never true: '<=' compares numbers, and null is not a number"),
    ],
)
def test_a_guard_that_cannot_hold_is_warned_of(guard: Any, said: str):
    assert warnings(BOTH, [edge("review", "fix", guard)]) == [said]


# -- a person --------------------------------------------------------------------------------------------------------


def asked(**fields: Any) -> dict[str, Any]:
    return {"nodeKey": "sign", "nodeType": "human", "sequenceIndex": 1, **fields}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"promptTemplate": {"content": "May ${it} go?"}, "displayName": "Sign"}, "May $${it} go?"),
        ({"displayName": "Sign it"}, "Sign it"),
        ({}, "sign"),
    ],
)
def test_a_person_is_asked(fields: dict[str, Any], message: str):
    assert step(asked(**fields))["approve"] == {"message": message}


def test_a_person_s_yes_is_the_decision_approved_and_a_no_is_a_failure():
    found = steps(
        [asked(), node("send", 2), node("draft", 3), node("tell", 4)],
        [
            edge("sign", "draft", CHANGES, priority=2),
            edge("sign", "send", APPROVED, priority=1),
            failing("sign", "tell"),
        ],
    )["sign"]

    assert found["next"] == [
        "send",
        {"to": "draft", "on": "failure", "codes": ["APPROVAL_REFUSED"]},
        {"to": "tell", "on": "failure"},
    ]
    assert ("take" in found, "validate" in found, "no_match" in found) == (False, False, False)


def test_a_guard_on_a_field_of_an_answer_that_is_text_is_announced():
    guarded = [
        edge("review", "fix", {"field": "report.score", "operator": "<", "value": 80}, priority=1),
        edge("review", "publish", priority=2),
    ]

    assert warnings(BOTH, guarded) == ["this guard reads 'report.score' of an answer that is text: it is false"]
    assert warnings([node("review", 1, reportArtifactContentType="json"), *BOTH[1:]], guarded) == []
