"""The table of conditions: each row matches, explains a mismatch and describes itself."""

from __future__ import annotations

import msgspec
import pytest

from mulligan.core.deciding.conditions import (
    CONDITIONS,
    describe_edge,
    describe_rule,
    edge_mismatch,
    matching_rule,
    rule_mismatch,
)
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Edge, Rule
from mulligan.language.keys.retry_keys import RULE_KEYS

FOUND = failure("EXIT_NONZERO", "disk full", exit_code=42)
# As a worker reports `httpx.ConnectTimeout`: the name of its definition, that of the package, and the bases.
TIMED_OUT = failure(
    "EXCEPTION",
    exceptions=("httpx._exceptions.ConnectTimeout", "httpx.ConnectTimeout", "httpx.TimeoutException", "Exception"),
)
REFUSED = failure("PERMISSION", exceptions=("PermissionError", "OSError", "Exception"))


def test_each_condition_is_a_field_of_a_rule_and_a_key_of_the_language():
    keys = [condition.key for condition in CONDITIONS]

    assert keys == [key for key in RULE_KEYS if key in keys]
    assert set(keys) <= set(Rule.__struct_fields__)


@pytest.mark.parametrize(
    ("rule", "described", "mismatch"),
    [
        (Rule(codes=("TIMEOUT", "CONNECTION")), "TIMEOUT, CONNECTION", "the code was EXIT_NONZERO"),
        (Rule(exit_codes=(10,)), "exit code 10", "exit code was 42"),
        (Rule(exit_codes=(1, *range(128, 256), 10, 12, 11)), "exit codes 1, 10-12, 128-255", "exit code was 42"),
        (Rule(pattern="no space"), "'no space'", "the message does not match"),
        (Rule(codes=("EXIT_NONZERO",)), "EXIT_NONZERO", ""),
        (Rule(exit_codes=(41, 42)), "exit codes 41, 42", ""),
        (Rule(pattern="k f"), "'k f'", ""),
        (Rule(any=True), "any failure", ""),
        (Rule(exceptions=("KeyError", "a.B")), "KeyError, a.B", "no exception of Python code"),
    ],
)
def test_a_rule_says_what_it_is_for_and_why_it_does_not_match(rule: Rule, described: str, mismatch: str):
    assert describe_rule(rule) == described
    assert rule_mismatch(rule, FOUND) == mismatch
    assert (matching_rule((rule,), FOUND) is None) == bool(mismatch)


@pytest.mark.parametrize(
    ("edge", "described", "mismatch"),
    [
        (Edge("fix", 0, "failure"), "", ""),
        (Edge("fix", 0, "failure", codes=("TIMEOUT",)), "TIMEOUT", "codes_do_not_match"),
        (Edge("fix", 0, "failure", exit_codes=(1, 2)), "exit codes 1, 2", "exit_codes_do_not_match"),
        (
            Edge("fix", 0, "failure", codes=("EXIT_NONZERO",), exit_codes=(42,)),
            "EXIT_NONZERO and exit code 42",
            "",
        ),
    ],
)
def test_all_conditions_of_an_edge_must_match(edge: Edge, described: str, mismatch: str):
    assert describe_edge(edge) == described
    assert edge_mismatch(edge, FOUND) == mismatch


def test_an_edge_for_handler_failed_matches_a_failure_whose_handler_failed_and_a_rule_does_not():
    both = failure("EXIT_NONZERO", exit_code=42, handler_failure=failure("HANDLER_FAILED"))

    assert edge_mismatch(Edge("fix", 0, "failure", codes=("HANDLER_FAILED",)), both) == ""
    assert matching_rule((Rule(codes=("HANDLER_FAILED",)),), both) is None


@pytest.mark.parametrize(
    "name", ["httpx._exceptions.ConnectTimeout", "httpx.ConnectTimeout", "httpx.TimeoutException", "Exception"]
)
def test_a_rule_for_a_class_matches_it_under_each_of_its_names_and_by_a_base(name: str):
    assert matching_rule((Rule(exceptions=("KeyError", name)),), TIMED_OUT) == 0


def test_a_rule_for_another_class_says_which_one_was_raised():
    rule = Rule(exceptions=("httpx.ReadTimeout",))

    assert matching_rule((rule,), TIMED_OUT) is None
    assert rule_mismatch(rule, TIMED_OUT) == "it raised httpx._exceptions.ConnectTimeout"


def test_codes_and_exit_codes_come_before_a_class_and_a_class_before_a_pattern():
    rules = (
        Rule(any=True),
        Rule(pattern=""),
        Rule(pattern="slow"),
        Rule(exceptions=("httpx.TimeoutException",)),
        Rule(codes=("EXCEPTION",)),
    )
    found = msgspec.structs.replace(TIMED_OUT, message="slow")

    assert matching_rule(rules, found) == 4
    assert matching_rule(rules[:4], found) == 3
    assert matching_rule(rules[:3], found) == 2


def test_a_fatal_failure_is_retried_by_a_rule_for_its_very_class_and_not_by_one_for_a_base():
    assert REFUSED.is_fatal
    assert matching_rule((Rule(exceptions=("OSError", "Exception")),), REFUSED) is None
    assert matching_rule((Rule(exceptions=("PermissionError",)),), REFUSED) == 0
    assert matching_rule((Rule(codes=("PERMISSION",)),), REFUSED) == 0
