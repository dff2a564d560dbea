"""Names by how they begin: found without asking each, and the same as if each had been asked."""

from __future__ import annotations

import re

import pytest

from mulligan.language.checks.prefix_index import PrefixIndex, literal_prefix

NAMES = ["w_2", "a", "w_10", "w_1", "w", "W_1", "aa", "w_1x", "b-c", "w1", "z"]
EXPRESSIONS = [
    # what all that match begins with
    ("w_.*", "w_"),
    ("w_1", "w_1"),
    ("w_[0-9]+", "w_"),
    (r"w_\d", "w_"),
    ("b-c", "b-c"),
    ("w(_1)?", "w"),
    ("w.", "w"),
    ("w$", "w"),
    # the last letter may be missing, or there twice
    ("w_1?", ""),
    ("aa*", ""),
    ("a+", ""),
    ("w_1{0,2}", ""),
    ("w_1x*", ""),
    # one of several
    ("w_1|a", ""),
    ("w_(1|2)", ""),
    # not plain at all
    ("", ""),
    (".*", ""),
    ("(?i)w_1", ""),
    ("[ab].*", ""),
]


@pytest.mark.parametrize(("expression", "beginning"), EXPRESSIONS)
def test_the_plain_beginning_of_an_expression(expression: str, beginning: str) -> None:
    assert literal_prefix(expression) == beginning


@pytest.mark.parametrize("expression", [expression for expression, _ in EXPRESSIONS])
def test_nothing_that_matches_is_left_out_and_the_order_stays(expression: str) -> None:
    found = PrefixIndex(NAMES).names_with_prefix(literal_prefix(expression))

    assert [name for name in found if re.fullmatch(expression, name)] == [
        name for name in NAMES if re.fullmatch(expression, name)
    ]


def test_names_that_begin_so_come_in_their_order() -> None:
    assert PrefixIndex(NAMES).names_with_prefix("w_1") == ["w_10", "w_1", "w_1x"]
