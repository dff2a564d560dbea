"""Whether two results are the same answer: the same rows, in an order only if it matters, floats nearly equal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import msgspec

# Sums of floats differ in their last digits from one plan to another.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
# A decimal that is no float is a text in JSON.
_DECIMAL = re.compile(r"-?\d+\.\d+")
ROWS_SHOWN_MAX = 3
# The same columns in another order are the same answer. With more columns only the order as written is tried.
_PERMUTED_COLUMNS_MAX = 6
# Rows that are nearly equal may sort differently. Up to so many are matched one by one then.
_MATCHED_ROWS_MAX = 300

Row = tuple[Any, ...]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer differs from what was expected: at most some rows of each."""

    message: str
    expected_only: list[list[Any]] = []
    answered_only: list[list[Any]] = []


def compare(expected: Sequence[Row], answered: Sequence[Row], *, is_ordered: bool) -> Difference | None:
    """None if both are the same answer."""
    width = len(expected[0]) if expected else 0
    if expected and answered and len(answered[0]) != width:
        return Difference(
            message=f"{_columns(width)} expected, {len(answered[0])} answered",
            expected_only=_shown(expected),
            answered_only=_shown(answered),
        )
    if len(expected) != len(answered) or not _is_same_in_some_order(expected, answered, width, is_ordered=is_ordered):
        return _difference(expected, answered, is_ordered=is_ordered)
    return None


def _is_same_in_some_order(expected: Sequence[Row], answered: Sequence[Row], width: int, *, is_ordered: bool) -> bool:
    if _is_same(expected, answered, is_ordered=is_ordered):
        return True
    if not 1 < width <= _PERMUTED_COLUMNS_MAX:
        return False
    columns = [[(row[at],) for row in answered] for at in range(width)]
    wanted = [[(row[at],) for row in expected] for at in range(width)]
    fits = [{at for at, column in enumerate(columns) if _is_same(one, column, is_ordered=is_ordered)} for one in wanted]
    for order in permutations(range(width)):
        if all(at in fits[place] for place, at in enumerate(order)):
            permuted = [tuple(row[at] for at in order) for row in answered]
            if _is_same(expected, permuted, is_ordered=is_ordered):
                return True
    return False


def _is_same(expected: Sequence[Row], answered: Sequence[Row], *, is_ordered: bool) -> bool:
    if is_ordered:
        return all(map(_are_rows_equal, expected, answered))
    if all(map(_are_rows_equal, sorted(expected, key=_sort_key), sorted(answered, key=_sort_key))):
        return True
    return len(expected) <= _MATCHED_ROWS_MAX and not any(_unmatched(expected, answered))


def _difference(expected: Sequence[Row], answered: Sequence[Row], *, is_ordered: bool) -> Difference:
    counts = f"{_rows(len(expected))} expected, {len(answered):,} answered"
    if is_ordered and len(expected) == len(answered):
        at = next(at for at, pair in enumerate(zip(expected, answered, strict=True)) if not _are_rows_equal(*pair))
        message = f"row {at + 1} of {len(expected):,} differs, and the order counts"
        return Difference(message=message, expected_only=_shown(expected[at:]), answered_only=_shown(answered[at:]))
    missing, extra = _unmatched(expected, answered)
    if not missing and not extra:
        return Difference(message=f"{counts}: the order differs")
    return Difference(message=counts, expected_only=_shown(missing), answered_only=_shown(extra))


def _unmatched(expected: Sequence[Row], answered: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of each that the other has not. Each row is matched once."""
    missing, extra = [], sorted(answered, key=_sort_key)
    for row in sorted(expected, key=_sort_key):
        at = next((at for at, other in enumerate(extra) if _are_rows_equal(row, other)), None)
        if at is None:
            missing.append(row)
        else:
            del extra[at]
    return missing, extra


def _are_rows_equal(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(map(_are_equal, one, other))


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    left, right = _number(one), _number(other)
    if left is None or right is None:
        return bool(one == other)
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return math.isclose(left, right, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _number(value: Any) -> float | int | None:
    if isinstance(value, (int, float)):
        return value
    return float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else None


def _sort_key(row: Row) -> tuple[list[str], list[float]]:
    """Texts first: floats that are nearly equal must not decide about the order of rows that differ in a text."""
    numbers = [_number(value) for value in row]
    texts = ["" if number is not None else repr(value) for value, number in zip(row, numbers, strict=True)]
    return texts, [float(number) for number in numbers if number is not None]


def _shown(rows: Sequence[Row]) -> list[list[Any]]:
    return [list(row) for row in rows[:ROWS_SHOWN_MAX]]


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"
