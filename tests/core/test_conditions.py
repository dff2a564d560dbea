"""The table of conditions: each row matches, explains a mismatch and describes itself."""

from __future__ import annotations

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
