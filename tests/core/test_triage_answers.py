"""The answer of a triager: what is read of it, what is refused in which words, and what its provider is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.agents.triage_agent import judge_suggestion
from mulligan.core.deciding.json_schema import schema_problem, value_problems
from mulligan.core.model.agents.triage_answers import ANSWER_SCHEMA, TriageAnswer, read_answer
from mulligan.core.model.text.durations import DURATION_SECONDS_MAX
from mulligan.core.model.text.sizes import SIZE_BYTES_MAX
from mulligan.core.model.workflow import Action, Command, TriageAgent

GIB = 2**30
ASKED = Command(action=Action("agent", {"provider": "claude"}))
PLAIN: dict[str, Any] = {"verdict": "retry", "confidence": 0.9, "reason": "the mirror was down"}


def answer(**keys: Any) -> dict[str, Any]:
    return {**PLAIN, **keys}


def judged(answer: Any, **limits: Any) -> tuple[str, str]:
    found = judge_suggestion(TriageAgent("claude", ASKED, **limits), 0, answer)
    return found.why_not, found.detail


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, TriageAnswer("retry", 0.9, "the mirror was down")),
        ({"verdict": "fail", "confidence": 0}, TriageAnswer("fail", 0.0, "the mirror was down")),
        ({"confidence": 1, "reason": " x "}, TriageAnswer("retry", 1.0, "x")),
        ({"memory": "4GiB", "timeout": "30m"}, TriageAnswer("retry", 0.9, PLAIN["reason"], 4 * GIB, 1800.0)),
        ({"memory": 1, "timeout": 0.5}, TriageAnswer("retry", 0.9, PLAIN["reason"], 1, 0.5)),
        (
            {"memory": SIZE_BYTES_MAX, "timeout": DURATION_SECONDS_MAX},
            TriageAnswer("retry", 0.9, PLAIN["reason"], SIZE_BYTES_MAX, DURATION_SECONDS_MAX),
        ),
        ({"memory": None, "timeout": None, "rule": None}, TriageAnswer("retry", 0.9, PLAIN["reason"])),
        ({"rule": "codes: [TIMEOUT]"}, TriageAnswer("retry", 0.9, PLAIN["reason"], rule="codes: [TIMEOUT]")),
    ],
)
def test_a_valid_answer_is_read_and_its_schema_allows_it(keys: dict[str, Any], expected: TriageAnswer) -> None:
    assert read_answer(answer(**keys)) == expected
    assert value_problems(ANSWER_SCHEMA, answer(**keys)) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([], "the answer is not a JSON object"),
        (answer(verdikt="retry"), "'verdikt' is not a key of an answer"),
        (answer(verdict="delete"), "the verdict is 'delete', not retry or fail"),
        (answer(verdict=1), "the verdict is '1', not retry or fail"),
        ({"confidence": 1, "reason": "x"}, "the verdict is 'None', not retry or fail"),
        (answer(confidence=1.01), "the confidence is '1.01', not a number from 0 to 1"),
        (answer(confidence=-0.01), "the confidence is '-0.01', not a number from 0 to 1"),
        (answer(confidence="high"), "the confidence is 'high', not a number from 0 to 1"),
        ({"verdict": "fail", "reason": "x"}, "the confidence is 'None', not a number from 0 to 1"),
        (answer(reason=""), "there is no reason"),
        (answer(reason=7), "the reason is '7', not a text"),
        ({"verdict": "fail", "confidence": 1}, "there is no reason"),
        (answer(memory=[1]), "the memory is '[1]', not a size such as 4GiB"),
        (answer(timeout=[]), "the timeout is '[]', not a duration such as 30m"),
        (answer(rule=[]), "the rule is '[]', not a text"),
    ],
)
def test_a_wrong_answer_is_refused_in_words_and_its_schema_refuses_it_too(wrong: Any, words: str) -> None:
    assert judged(wrong) == ("invalid_answer", words)
    assert value_problems(ANSWER_SCHEMA, wrong) != []


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"memory": 0}, "the memory is '0', not a size such as 4GiB"),
        ({"memory": SIZE_BYTES_MAX + 1}, f"the memory is '{SIZE_BYTES_MAX + 1}', not a size such as 4GiB"),
        ({"memory": "lots"}, "the memory is 'lots', not a size such as 4GiB"),
        ({"timeout": 0}, "the timeout is '0', not a duration such as 30m"),
        ({"timeout": "1e999d"}, "the timeout is '1e999d', not a duration such as 30m"),
        ({"timeout": 10**400}, f"the timeout is '{'1' + '0' * 58}…', not a duration such as 30m"),
        ({"verdict": "fail", "memory": "1GiB"}, "memory and timeout are for a retry, and the verdict is fail"),
        ({"verdict": "fail", "timeout": "1s"}, "memory and timeout are for a retry, and the verdict is fail"),
    ],
)
def test_what_no_schema_says_is_refused_in_words(keys: dict[str, Any], words: str) -> None:
    assert judged(answer(**keys), memory_max=GIB, timeout_max=60.0) == ("invalid_answer", words)


def test_a_wrong_value_is_quoted_in_sixty_characters_that_can_be_written() -> None:
    assert judged(answer(verdict="x" * 60))[1] == f"the verdict is '{'x' * 60}', not retry or fail"
    assert judged(answer(verdict="x" * 61))[1] == f"the verdict is '{'x' * 59}…', not retry or fail"
    assert judged(answer(verdict="a\x00b"))[1] == "the verdict is 'a\ufffdb', not retry or fail"


def test_long_texts_are_cut() -> None:
    found = read_answer(answer(reason="x" * 3000, rule="y" * 3000))

    assert (len(found.reason), len(found.rule)) == (2000, 1000)


def test_the_schema_can_be_used_and_names_what_a_provider_has_to_ask_for() -> None:
    assert schema_problem(ANSWER_SCHEMA) == ""
    # Providers that enforce a schema want all of these.
    assert ANSWER_SCHEMA["type"] == "object"
    assert ANSWER_SCHEMA["required"] == ["verdict", "confidence", "reason"]


# -- judging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "limits", "why_not", "detail"),
    [
        ({"verdict": "fail"}, {"may": ("retry",)}, "not_allowed", "it may decide: retry"),
        ({"verdict": "fail"}, {"may": ("retry", "wait")}, "not_allowed", "it may decide: retry, wait"),
        ({"confidence": 0.5}, {"min_confidence": 0.75}, "below_confidence", "50% is below 75%"),
        ({"memory": "1MiB"}, {}, "memory_max", "it asks for 1MiB, and may give none"),
        ({"memory": 1}, {}, "memory_max", "it asks for 1B, and may give none"),
        ({"memory": "2GiB"}, {"memory_max": GIB}, "memory_max", "it asks for 2.0GiB, and may give at most 1.0GiB"),
        ({"timeout": 90}, {"timeout_max": 60.0}, "timeout_max", "it asks for 90s, and may give at most 60s"),
        ({"timeout": 0.5}, {}, "timeout_max", "it asks for 0.5s, and may give none"),
        ({}, {"max_per_run": 0}, "max_per_run", "agents may decide 0 times in a run"),
        ({"confidence": 0.75}, {"min_confidence": 0.75}, "", ""),
        ({"memory": "1GiB", "timeout": 60}, {"memory_max": GIB, "timeout_max": 60.0}, "", ""),
    ],
)
def test_an_answer_is_applied_within_its_limits_and_a_person_reads_why_it_was_not(
    keys: dict[str, Any], limits: dict[str, Any], why_not: str, detail: str
) -> None:
    assert judged(answer(**keys), **limits) == (why_not, detail)
