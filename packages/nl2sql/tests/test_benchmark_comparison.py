"""When two results are the same answer."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan_nl2sql.benchmark.comparison import Difference, compare

ABC = [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("expected", "answered", "is_ordered"),
    [
        ([], [], False),
        (ABC, ABC, True),
        (ABC, ABC[::-1], False),
        # Columns in another order, but the same rows.
        (ABC, [(number, letter) for letter, number in ABC[::-1]], False),
        (ABC, [(number, letter) for letter, number in ABC], True),
        ([(0.1 + 0.2, "x"), (0.3, "y")], [(0.3, "y"), (0.3, "x")], False),
        ([(0.1 + 0.2, 5), (0.3, 4)], [(0.3, 5), (0.3, 4)], False),
        ([(30,)], [(30.0,)], False),
        ([(True,)], [(1,)], False),
        ([(None, None)], [(None, None)], False),
        # A decimal that is no float.
        ([("12.50",)], [(12.5,)], False),
    ],
)
def test_it_is_the_same_answer(expected: list[Any], answered: list[Any], is_ordered: bool) -> None:
    assert compare(expected, answered, is_ordered=is_ordered) is None
    assert compare(answered, expected, is_ordered=is_ordered) is None


@pytest.mark.parametrize(
    ("expected", "answered", "is_ordered", "difference"),
    [
        (ABC, ABC[::-1], True, ("row 1 of 3 differs, and the order counts", ["a", 1], ["c", 3])),
        (ABC, ABC[:2], False, ("3 rows expected, 2 answered", ["c", 3], None)),
        # Each row counts once.
        ([("a",), ("a",)], [("a",), ("b",)], False, ("2 rows expected, 2 answered", ["a"], ["b"])),
        ([("a",), ("a",)], [("a",)], False, ("2 rows expected, 1 answered", ["a"], None)),
        (ABC, [("a",)], False, ("2 columns expected, 1 answered", ["a", 1], ["a"])),
        # The values of the columns fit, and the rows do not.
        ([(1, 2), (2, 1), (3, 3)], [(1, 1), (2, 2), (3, 3)], False, ("3 rows expected, 3 answered", [1, 2], [1, 1])),
        ([(1000000001,)], [(1000000002,)], False, ("1 row expected, 1 answered", [1000000001], [1000000002])),
        ([(0.3,)], [(0.3001,)], False, ("1 row expected, 1 answered", [0.3], [0.3001])),
        ([(None,)], [(0,)], False, ("1 row expected, 1 answered", [None], [0])),
        ([("01234",)], [(1234,)], False, ("1 row expected, 1 answered", ["01234"], [1234])),
        ([("",)], [(None,)], False, ("1 row expected, 1 answered", [""], [None])),
        ([], [("a",)], False, ("0 rows expected, 1 answered", None, ["a"])),
    ],
)
def test_a_difference_is_named_with_the_first_rows(
    expected: list[Any], answered: list[Any], is_ordered: bool, difference: tuple[str, Any, Any]
) -> None:
    found = compare(expected, answered, is_ordered=is_ordered)

    assert isinstance(found, Difference)
    firsts = [next(iter(rows), None) for rows in (found.expected_only, found.answered_only)]
    assert (found.message, *firsts) == difference


def test_of_many_different_rows_three_are_shown() -> None:
    found = compare([(n,) for n in range(9)], [(n,) for n in range(10, 20)], is_ordered=False)

    assert found is not None
    assert (found.expected_only, found.answered_only) == ([[0], [1], [2]], [[10], [11], [12]])
