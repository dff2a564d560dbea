"""What a function returns, held against its return annotation: checked where that says something, otherwise left."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypedDict, TypeVar

import numpy
import pandas
import pytest

from mulligan.values.annotations import is_surely_annotated
from mulligan.values.results import ResultMisfit, check_result

T = TypeVar("T")


@dataclass
class Order:
    sku: str
    amount: Decimal


class Point(NamedTuple):
    x: int
    y: int


class Row(TypedDict):
    name: str
    count: int


class Sized(Protocol):
    size: int


def returning(hint: Any, value: object) -> Callable[[], object]:
    def load() -> object:
        return value

    load.__annotations__["return"] = hint
    return load


def reason(hint: Any, value: object) -> str:
    """Why a result is refused; "" if it is taken."""
    function = returning(hint, value)
    try:
        check_result(function, value)
    except ResultMisfit as misfit:
        assert not is_surely_annotated(function, value)
        return str(misfit)
    return ""


FITS = [
    (int, 3),
    (int, True),
    (int, numpy.int64(3)),
    (float, 3),
    (float, numpy.float32(0.5)),
    (str, "a"),
    (None, None),
    ("None", None),
    (int | None, 3),
    (list[str] | None, None),
    (list[str] | None, ["a"]),
    (list[int], (1, 2)),
    (Sequence[int], [1]),
    (tuple[int, ...], [1, 2, 3]),
    (tuple[int, str], (1, "a")),
    (dict[str, int], {"a": 1}),
    (dict[date, int], {date(2026, 1, 1): 1}),
    (Mapping[str, Any], {"a": object()}),
    (set[str], {"a"}),
    (Literal["a", "b"], "a"),
    (Order, Order("A1", Decimal(1))),
    (Order, {"sku": "A1", "amount": "1.10"}),
    (list[Order], [Order("A1", Decimal(1))]),
    (Point, Point(1, 2)),
    (Row, {"name": "a", "count": 1}),
    (date, date(2026, 1, 1)),
    (date, "2026-01-01"),
    (datetime, datetime(2026, 1, 1)),
    (Path, Path("a")),
    (pandas.DataFrame, pandas.DataFrame({"a": [1]})),
    (Annotated[int, "rows"], 3),
    # Nobody can say.
    (T, 3),
    (list[T], [object()]),
    (Sized, 3),
    ("Missing", 3),
    ("list[Missing]", [3]),
    ("nonsense(", 3),
    (Any, object()),
    (object, object()),
]


@pytest.mark.parametrize(("hint", "value"), FITS, ids=map(str, range(len(FITS))))
def test_what_fits_is_taken(hint: Any, value: object):
    assert reason(hint, value) == ""


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, "7", "the result does not fit '-> int': the result must be an integer, and is \"7\""),
        (str, 7, "the result does not fit '-> str': the result must be text, and is 7"),
        (float, "7", "the result does not fit '-> float': the result must be a number, and is \"7\""),
        (None, 7, "the result does not fit '-> None': the result must be null, and is 7"),
        (int, None, "the result does not fit '-> int': the result must be an integer, and is null"),
        (list[str], ["a", 7], "the result does not fit '-> list[str]': the result[1] must be text, and is 7"),
        (
            list[str] | None,
            ["a", 7],
            "the result does not fit '-> list[str] | None': the result[1] must be text, and is 7",
        ),
        (
            dict[str, int],
            {"a": "b"},
            "the result does not fit '-> dict[str, int]': the result['a'] must be an integer, and is \"b\"",
        ),
        (
            tuple[int, str],
            (1,),
            "the result does not fit '-> tuple[int, str]': the result must be a list of 2 values, and is [1]",
        ),
        (
            Literal["a", "b"],
            "c",
            "the result does not fit '-> Literal['a', 'b']': the result must be one of \"a\", \"b\", and is \"c\"",
        ),
        (
            Row,
            {"name": "a", "count": "1"},
            "the result does not fit '-> Row': the result.count must be an integer, and is \"1\"",
        ),
        (
            list[Order],
            [Order("A1", "x")],  # type: ignore[arg-type]
            "the result does not fit '-> list[Order]': the result[0].amount must be a decimal number, and is \"x\"",
        ),
        (
            pandas.DataFrame,
            [1],
            "the result does not fit '-> DataFrame': the result must be a pandas.DataFrame, and is [1]",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_annotation_and_value(hint: Any, value: object, expected: str):
    assert reason(hint, value) == expected


def test_the_annotation_of_a_decorated_function_says_nothing_of_its_result():
    def twice(function: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(function)
        def both() -> list[Any]:
            return [function(), function()]

        return both

    @twice
    def one() -> int:
        return 1

    check_result(one, one())


def test_a_generator_is_annotated_with_what_it_yields():
    def load() -> Iterator[float]:
        yield 0.5
        return "done"

    check_result(load, "done")


@pytest.mark.parametrize(
    ("hint", "value"),
    [("int", 3), (list[dict[str, int]], [{"a": 1}]), (None, None), (Any, None), (dict, {}), (list[str] | None, None)],
)
def test_the_usual_results_are_taken_at_a_glance(hint: Any, value: object):
    assert is_surely_annotated(returning(hint, value), value) == (hint is not Any)


def test_a_class_that_cannot_be_compared_breaks_nothing():
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError

        __hash__ = None  # type: ignore[assignment]

    assert reason(Literal["a"], Odd()) != ""
