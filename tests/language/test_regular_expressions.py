"""Which regular expressions are taken for endless: with anything in a repeated group that may match in several ways."""

from __future__ import annotations

import pytest

from mulligan.language.checks.regular_expressions import may_backtrack_exponentially


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$",
        # Also where nobody would look for it: behind another group, a flag, a name, a lookahead.
        "((a+))+",
        "(?:(a+)b?)*",
        "(?i)(a+)+",
        "(?P<word>a*)*",
        "(?=(a+)+$)",
        "(?>(a+)+)",
        "([^)]+)+",
        # Lazy is a choice too; so is a number of times that is not fixed, and one of several words.
        "(a+?)*",
        r"(\w+\s?)*x",
        "(a{1,5}){3,}",
        "(a?){30}",
        "(a|aa)+$",
    ],
)
def test_a_choice_in_a_repeated_group_may_take_for_ever(text: str) -> None:
    assert may_backtrack_exponentially(text)


@pytest.mark.parametrize(
    "text",
    [
        "license .* unavailable",
        "connection (refused|reset)",
        "(a+|b+)x",
        # Not repeated: at most once.
        "(a+)?",
        "(a+){1}",
        # No choice: always the same number of times, or nothing is given back.
        r"(\d{3},)+",
        "(a++)+$",
        "(a+)++",
        "(?>a|b)+",
        "(?=a+)*",
        # Not a group, not a repeat.
        "[(a+)]+",
        r"\(a+\)+",
        "(?#(a+)x",
        "(?P<x>a)(?P=x)+",
        "x{,",
    ],
)
def test_others_end(text: str) -> None:
    assert not may_backtrack_exponentially(text)
