"""Failure handlers become retry policies, whose rules bound the attempts of the job."""

from __future__ import annotations

from typing import Any

import pytest

from .reading import job, ours, refusal, warned


def rules(text: str) -> list[dict[str, Any]]:
    """The rules of ours that a list of Torc's becomes; a script is its text alone."""
    found = ours(f"name: w\nfailure_handlers: [{{name: h, rules: {text}}}]\njobs: [{{name: a, command: x}}]\n")
    return [
        {**rule, **({"recovery_script": rule["recovery_script"]["shell"]} if "recovery_script" in rule else {})}
        for rule in found["retry_policies"]["h"]["rules"]
    ]


RULES = [
    ("[{exit_codes: [10, 11]}]", [{"exit_codes": [10, 11], "max_attempts": 3}]),
    ("[{exit_codes: [10], max_retries: 5}]", [{"exit_codes": [10], "max_attempts": 5}]),
    # three attempts are two retries; one attempt is none, and so is none
    ("[{exit_codes: [10], max_retries: 1}]", [{"exit_codes": [10], "max_attempts": 1}]),
    ("[{exit_codes: [10], max_retries: 0}]", [{"exit_codes": [10], "max_attempts": 1}]),
    ("[{exit_codes: [10], max_retries: null}]", [{"exit_codes": [10], "max_attempts": 3}]),
    ("[{match_all_exit_codes: true}]", [{"any": True, "max_attempts": 3}]),
    (
        "[{exit_codes: [10], recovery_script: ./fix.sh}]",
        [{"exit_codes": [10], "max_attempts": 3, "recovery_script": "./fix.sh"}],
    ),
    # Torc says 1 where a job leaves out a file
    (
        "[{exit_codes: [1, 2], max_retries: 4}]",
        [{"codes": ["OUTPUT_MISSING"], "max_attempts": 4}, {"exit_codes": [1, 2], "max_attempts": 4}],
    ),
    # and -1 where one was killed, whatever by
    ("[{exit_codes: [-1]}]", [{"codes": ["SIGNALED", "OUT_OF_MEMORY"], "max_attempts": 3}]),
    # one signal
    ("[{exit_codes: [-9, 7]}]", [{"exit_codes": [137, 7], "max_attempts": 3}]),
    # both kinds in one rule
    (
        "[{exit_codes: [10], match_all_exit_codes: true, max_retries: 2}]",
        [{"exit_codes": [10], "max_attempts": 2}, {"any": True, "max_attempts": 2}],
    ),
    (
        "[{match_all_exit_codes: true, max_retries: 2}, {exit_codes: [10], max_retries: 5}]",
        [{"any": True, "max_attempts": 2}, {"exit_codes": [10], "max_attempts": 5}],
    ),
]


@pytest.mark.parametrize(("written", "meant"), RULES)
def test_a_rule_of_torcs_is_one_or_several_of_ours(written: str, meant: list[dict[str, Any]]) -> None:
    assert rules(written) == meant


def test_a_recovery_script_may_take_longer_than_ours_do() -> None:
    found = ours("""
        name: w
        failure_handlers: [{name: h, rules: [{exit_codes: [2], recovery_script: ./fix.sh}]}]
        jobs: [{name: a, command: x, failure_handler: h}]
    """)
    (rule,) = found["retry_policies"]["h"]["rules"]

    assert (rule["recovery_script"]["shell"], rule["recovery_script"]["timeout"]) == ("./fix.sh", "1h")


def test_a_job_names_its_handler() -> None:
    top = "failure_handlers: [{name: my handler, rules: [{exit_codes: [2]}]}]"

    assert job("- {name: a, command: x, failure_handler: my handler}", top)["retry"] == "my_handler"


def test_a_handler_without_rules_grants_nothing() -> None:
    assert job("- {name: a, command: x, failure_handler: h}", "failure_handlers: [{name: h, rules: []}]")["retry"] == 0


def test_names_of_handlers_are_made_to_fit() -> None:
    found = ours("""
        name: w
        failure_handlers: [{name: 2nd, rules: [{exit_codes: [2]}]}, {name: a b, rules: [{exit_codes: [3]}]}]
        jobs: [{name: a, command: x, failure_handler: 2nd}, {name: b, command: x, failure_handler: a b}]
    """)

    assert list(found["retry_policies"]) == ["_2nd", "a_b"]
    assert [step["retry"] for step in found["steps"]] == ["_2nd", "a_b"]


@pytest.mark.parametrize(("said", "triage"), [("true", True), ("false", None), ("null", None)])
def test_failures_without_a_rule_are_parked_if_the_workflow_says_so(said: str, triage: bool | None) -> None:
    assert job("- {name: a, command: x}", f"use_pending_failed: {said}").get("triage") is triage


# -- what is said --------------------------------------------------------------------------------------------------


def test_a_rule_that_matches_nothing_is_left_out_and_that_is_said() -> None:
    said = warned("""\
        name: w
        failure_handlers: [{name: h, rules: [{max_retries: 2}, {exit_codes: [2]}]}]
        jobs: [{name: a, command: x, failure_handler: h}]
    """)

    assert said == (
        "warning[language.rule]: w.yaml:2:38: the rule matches no failure and is ignored\n"
        "  2 | failure_handlers: [{name: h, rules: [{max_retries: 2}, {exit_codes: [2]}]}]\n"
        "    |                                      ^ add 'exit_codes' or 'match_all_exit_codes: true'"
    )


def test_an_exit_code_that_is_no_failure_is_told_of() -> None:
    said = warned("""\
        name: w
        failure_handlers: [{name: h, rules: [{exit_codes: [0, 2]}]}]
        jobs: [{name: a, command: x, failure_handler: h}]
    """)

    assert said == (
        "warning[language.rule]: w.yaml:2:52: a job that exits with 0 has not failed\n"
        "  2 | failure_handlers: [{name: h, rules: [{exit_codes: [0, 2]}]}]\n"
        "    |                                                    ^"
    )


# -- what is refused -----------------------------------------------------------------------------------------------

REFUSED = [
    # a handler that is not there, which Torc does not look at
    (
        "failure_handlers: [{name: flaky, rules: []}]\njobs: [{name: a, command: x, failure_handler: falky}]",
        "error[language.unknown_handler]: w.yaml:3:47: there is no failure handler 'falky'\n"
        "  3 | jobs: [{name: a, command: x, failure_handler: falky}]\n"
        "    |                                               ^^^^^ did you mean 'flaky'?",
    ),
    # and what else is not there is said with it
    (
        "jobs: [{name: a, command: x, failure_handler: h, resource_requirements: r}]",
        "error[language.unknown_handler]: w.yaml:2:47: there is no failure handler 'h'\n"
        "  2 | jobs: [{name: a, command: x, failure_handler: h, resource_requirements: r}]\n"
        "    |                                               ^ declare it under 'failure_handlers'\n"
        "error[language.unknown_requirements]: w.yaml:2:73: there are no resource requirements 'r'\n"
        "  2 | jobs: [{name: a, command: x, failure_handler: h, resource_requirements: r}]\n"
        "    |                                                                         ^ "
        "declare them under 'resource_requirements'",
    ),
    (
        "jobs: [{name: a, command: x, failure_handler: h}]",
        "error[language.unknown_handler]: w.yaml:2:47: there is no failure handler 'h'\n"
        "  2 | jobs: [{name: a, command: x, failure_handler: h}]\n"
        "    |                                               ^ declare it under 'failure_handlers'",
    ),
    (
        "failure_handlers: [{name: h, rules: []}, {name: h, rules: []}]\njobs: [{name: a, command: x}]",
        "error[language.duplicate_name]: w.yaml:2:49: there are two failure handlers 'h': first in line 2\n"
        "  2 | failure_handlers: [{name: h, rules: []}, {name: h, rules: []}]\n"
        "    |                                                 ^",
    ),
    (
        "failure_handlers: [{name: h}]\njobs: [{name: a, command: x}]",
        "error[language.missing_key]: w.yaml:2:20: a failure handler has no 'rules'\n"
        "  2 | failure_handlers: [{name: h}]\n"
        "    |                    ^ add 'rules: …'",
    ),
    (
        "failure_handlers: [{name: h, rules: [{exit_codes: [256]}]}]\njobs: [{name: a, command: x}]",
        "error[language.type]: w.yaml:2:52: "
        "an entry of 'exit_codes' is '256', a whole number from -64 to 255 is expected\n"
        "  2 | failure_handlers: [{name: h, rules: [{exit_codes: [256]}]}]\n"
        "    |                                                    ^^^",
    ),
    (
        "failure_handlers: [{name: h, rules: [{exit_codes: 1}]}]\njobs: [{name: a, command: x}]",
        "error[language.type]: w.yaml:2:51: 'exit_codes' is '1', a list is expected\n"
        "  2 | failure_handlers: [{name: h, rules: [{exit_codes: 1}]}]\n"
        "    |                                                   ^",
    ),
    (
        "failure_handlers: [{name: h, rules: [{exit_codes: [2], delay: 5}]}]\njobs: [{name: a, command: x}]",
        "error[language.unknown_key]: w.yaml:2:56: 'delay' is not a key of an entry of 'rules'\n"
        "  2 | failure_handlers: [{name: h, rules: [{exit_codes: [2], delay: 5}]}]\n"
        "    |                                                        ^^^^^ "
        "there are 'exit_codes', 'match_all_exit_codes', 'recovery_script' and 'max_retries'",
    ),
    (
        "failure_handlers: [{name: h, rules: [{match_all_exit_codes: yes}]}]\njobs: [{name: a, command: x}]",
        "error[language.type]: w.yaml:2:61: 'match_all_exit_codes' is 'yes', true or false is expected\n"
        "  2 | failure_handlers: [{name: h, rules: [{match_all_exit_codes: yes}]}]\n"
        "    |                                                             ^^^ write true",
    ),
]


@pytest.mark.parametrize(("entries", "said"), REFUSED)
def test_a_handler_that_says_nothing_sensible_is_refused_where_it_stands(entries: str, said: str) -> None:
    assert refusal(f"name: w\n{entries}\n") == said
