"""References: operators make expressions, and what needs the value itself is refused with what to write instead."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pydantic
import pytest
from tests.flows.functions import load

import mulligan
from mulligan import flow, step
from mulligan.errors import LanguageError
from mulligan.flows.literals import plain
from mulligan.flows.references import Reference, reads_of, source_of, step_path


def reference(source: str = "inputs.x") -> Any:
    return Reference(source, {})


x, y = reference("inputs.x"), reference("inputs.y")


class Color(Enum):
    RED = "red"


@dataclass
class Options:
    kind: ClassVar[str] = "options"
    level: int = 1


class Table(msgspec.Struct, rename="camel"):
    row_count: int = 1


@pytest.mark.parametrize(
    ("made", "source"),
    [
        (x.a, "inputs.x.a"),
        (x["a"], "inputs.x.a"),
        (x["a-b"], 'inputs.x["a-b"]'),
        (x["in"], 'inputs.x["in"]'),
        (x[0], "inputs.x[0]"),
        (x[y], "inputs.x[inputs.y]"),
        (x == "a", 'inputs.x == "a"'),
        (x != None, "inputs.x != null"),  # noqa: E711
        (x == True, "inputs.x == true"),  # noqa: E712
        (x == Color.RED, 'inputs.x == "red"'),
        (x == date(2026, 1, 2), 'inputs.x == "2026-01-02"'),
        (x == [1, "b"], 'inputs.x == [1, "b"]'),
        (x == {"a": 1.5}, 'inputs.x == {"a": 1.5}'),
        (x == 'say "no"\n', 'inputs.x == "say \\u0022no\\u0022\\u000a"'),
        (x > 3, "inputs.x > 3"),
        (x <= y, "inputs.x <= inputs.y"),
        (x >= 1, "inputs.x >= 1"),
        (x + 1, "inputs.x + 1"),
        ("a" + x, '"a" + inputs.x'),
        (10 - x, "10 - inputs.x"),
        (x - 1 - y, "inputs.x - 1 - inputs.y"),
        (x - (1 - y), "inputs.x - (1 - inputs.y)"),
        ((x + 1) * 2, "(inputs.x + 1) * 2"),
        (2 * x + 1, "2 * inputs.x + 1"),
        (x % 2 == 1, "(inputs.x % 2 + 2) % 2 == 1"),
        (7 % x, "(7 % inputs.x + inputs.x) % inputs.x"),
        (x + 1.5, "double(inputs.x) + 1.5"),
        (2.5 * (x - y), "2.5 * double(inputs.x - inputs.y)"),
        (x / 2, "double(inputs.x) / 2.0"),
        (1 / x, "1.0 / double(inputs.x)"),
        (-x, "-inputs.x"),
        (-(x + 1), "-(inputs.x + 1)"),
        (~(x > 1), "!(inputs.x > 1)"),
        ((x > 1) & (y < 2), "inputs.x > 1 && inputs.y < 2"),
        ((x > 1) | (y < 2) & ~x, "inputs.x > 1 || inputs.y < 2 && !inputs.x"),
        (((x > 1) | y) & x, "(inputs.x > 1 || inputs.y) && inputs.x"),
        (True & x, "true && inputs.x"),
        (False | x, "false || inputs.x"),
        ((x > 1).a, "(inputs.x > 1).a"),
        (x.startswith("a"), 'inputs.x.startsWith("a")'),
        (x.name.upper(), "inputs.x.name.upperAscii()"),
        (x.matches("^a"), 'inputs.x.matches("^a")'),
        (x.replace("a", y), 'inputs.x.replace("a", inputs.y)'),
        (x.get("a"), '"a" in inputs.x ? inputs.x.a : null'),
        (x.get("a", 3), '"a" in inputs.x ? inputs.x.a : 3'),
        (mulligan.size(x), "size(inputs.x)"),
        (mulligan.size(x) > 0, "size(inputs.x) > 0"),
        (mulligan.contains(x, "a"), '"a" in inputs.x'),
        (mulligan.contains(["a"], x), 'inputs.x in ["a"]'),
        (mulligan.expression("run.id"), "run.id"),
    ],
)
def test_an_operator_makes_an_expression(made: Any, source: str) -> None:
    assert source_of(made) == source


def test_a_reference_in_a_text_is_a_placeholder() -> None:
    assert f"{x}/{y.a}" == "${inputs.x}/${inputs.y.a}"
    assert repr(x) == "<reference to inputs.x>"


def test_a_step_with_a_hyphen_is_named_in_brackets() -> None:
    assert step_path("build-image") == 'steps["build-image"]'


@pytest.mark.parametrize(
    "made",
    [
        lambda a: mulligan.ended(a) + a,
        lambda a: a + mulligan.ended(a),
        lambda a: a[mulligan.ended(a)],
        lambda a: mulligan.ended(a).get(a),
        lambda a: a.replace("x", mulligan.ended(a)),
    ],
    ids=["sum", "reversed", "index", "get", "method"],
)
def test_a_step_that_is_read_in_two_ways_must_end_in_the_stricter_one(made: Callable[[Any], Any]) -> None:
    found = made(Reference("steps.a.output", {"a": "success"}))

    assert reads_of(found) == {"a": "success"}


def test_a_tuple_of_known_length_may_be_unpacked() -> None:
    first, second = Reference("steps.a.output", {}, shape=2)

    assert (source_of(first), source_of(second)) == ("steps.a.output[0]", "steps.a.output[1]")


def unpacked(value: Any) -> None:
    _, _ = value


def looped(value: Any) -> None:
    while value:
        pass


def chained(value: Any) -> None:
    assert 1 < value < 3


def both(value: Any) -> None:
    assert value and value


def found(value: Any) -> None:
    assert value in [1, 2]


def changed(value: Any) -> None:
    value["a"] = 1


def set_field(value: Any) -> None:
    value.a = 1


def removed(value: Any) -> None:
    del value["a"]


ASK = "write step.options(when=condition)(…), or mulligan.branch(condition, lambda: …, lambda: …)"
JOIN = "write & for 'and', | for 'or', ~ for 'not', and put each comparison in parentheses"


@pytest.mark.parametrize(
    ("attempt", "message", "hint"),
    [
        (lambda value: 1 if value else 2, "Python cannot decide on it", ASK),
        (looped, "Python cannot decide on it", "a loop is a route back to an earlier step: "),
        (chained, "Python cannot decide on it", JOIN),
        (both, "Python cannot decide on it", JOIN),
        (found, "Python cannot decide on it", "write mulligan.contains(values, x) for 'x in values'"),
        (lambda value: [one.a for one in value], "Python cannot iterate over it", "write step.map(rows)"),
        (unpacked, "Python cannot iterate over it", "write step.map(rows)"),
        (lambda value: len(value), "Python cannot count it", "write mulligan.size(rows)"),
        (lambda value: 1 in value, "Python cannot search it", "write mulligan.contains(rows, item)"),
        (lambda value: value[1:], "a slice needs the value", "take the part in a step"),
        (lambda value: value[-1], "an index from the end needs the length", "write rows[mulligan.size(rows) - 1]"),
        (changed, "it cannot be changed", "change the value in a step"),
        (removed, "it cannot be changed", "change the value in a step"),
        (set_field, "it cannot be changed", "change the value in a step"),
        (lambda value: int(value), "Python cannot convert it", "write mulligan.expression("),
        (lambda value: float(value), "Python cannot convert it", "convert it in a step"),
        (lambda value: [0][value], "Python cannot count with it", "let a step return it"),
        (lambda value: value // 2, "expressions have no such operator", "compute it in a step"),
        (lambda value: abs(value), "Python cannot compute with it", "compute it in a step"),
        (lambda value: value(), "it is a value, not a function", "call a step"),
        (
            lambda value: value.items(),
            "expressions have no method 'items'",
            "compute it in a step; there are startswith",
        ),
        (lambda value: value.split(sep=","), "expressions have no method 'split'", "compute it in a step"),
    ],
)
def test_what_needs_the_value_is_refused_with_what_to_write_instead(
    attempt: Callable[[Any], Any], message: str, hint: str
) -> None:
    with pytest.raises(LanguageError) as caught:
        attempt(reference())

    [problem] = caught.value.problems
    assert problem.code == "language.reference"
    assert problem.message.startswith("'inputs.x")
    assert problem.message.endswith(f"' has no value while the flow is built: {message}")
    assert problem.hint.startswith(hint)
    code = attempt.__code__
    assert (problem.file, problem.line in range(code.co_firstlineno, code.co_firstlineno + 4)) == (__file__, True)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: f"{x:.2f}", "'inputs.x' has no value yet, so ':.2f' cannot format it"),
        (lambda: (x > 1) & 2, "'&' joins conditions, and 2 is none"),
        (lambda: x == f"{y}/a", "a text with a reference in it cannot be part of an expression"),
        (
            lambda: x == object(),
            "a flow is built of plain values, and this value is of type 'object', which cannot be stored",
        ),
        (lambda: x == {(1, 2): 2}, "the keys of a mapping are texts, and (1, 2) is none"),
        (lambda: mulligan.ended(3), "mulligan.ended takes what a step returned, and this is 3"),
        (lambda: mulligan.outcome("fetch"), "mulligan.outcome takes what a step returned, and this is 'fetch'"),
    ],
)
def test_what_is_no_expression_is_refused(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        attempt()

    assert [problem.message for problem in caught.value.problems] == [message]


def test_a_refusal_shows_the_line_with_a_caret() -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.raises(LanguageError) as caught:
        bool(x)

    assert caught.value.render() == (
        f"error[language.reference]: {__file__}:{line}:9: 'inputs.x' has no value while the flow is built: "
        "Python cannot decide on it\n"
        f"  {line} |         bool(x)\n"
        f"  {' ' * len(str(line))} |         ^^^^^^^ {ASK}"
    )


async def awaits(value: Any) -> None:
    await value


def test_awaiting_a_reference_is_refused() -> None:
    coroutine = awaits(reference())

    with pytest.raises(LanguageError, match="leave 'await' out"):
        coroutine.send(None)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Path("a/b"), "a/b"),
        (Decimal("1.50"), "1.50"),
        ({3, 1}, [1, 3]),
        (range(3), [0, 1, 2]),
        ((1, (2,)), [1, [2]]),
        ({1, "a"}, ["a", 1]),
        (Options(), {"level": 1}),
        (Table(), {"rowCount": 1}),
        (timedelta(minutes=1), 60.0),
    ],
)
def test_a_value_is_written_as_a_step_would_return_it(value: Any, plain: Any) -> None:
    assert source_of(x == value) == source_of(x == plain)


def test_a_reference_may_be_copied() -> None:
    assert copy.deepcopy({"rows": [x]})["rows"][0] is x


class Renamed(msgspec.Struct, rename="camel", tag=True):
    unit_price: int


class Aliased(pydantic.BaseModel):
    price: int = pydantic.Field(alias="unit-price")


class Login(pydantic.BaseModel):
    token: pydantic.SecretStr


@dataclass
class Constant:
    LIMIT: ClassVar[int] = 3
    count: int = 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Renamed(1), {"type": "Renamed", "unitPrice": 1}),
        (Aliased(**{"unit-price": 1}), {"unit-price": 1}),
        (Constant(2), {"count": 2}),
        ({2, "b", 1, "a"}, ["a", "b", 1, 2]),
        ({True: 1, None: 2, 1.5: 3, Color.RED: 4}, {"true": 1, "null": 2, "1.5": 3, "red": 4}),
    ],
)
def test_a_value_is_stored_as_a_step_would_return_it(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_a_secret_in_a_model_is_refused() -> None:
    with pytest.raises(LanguageError, match="token is a secret, of which pydantic would keep only asterisks"):
        plain(Login(token=pydantic.SecretStr("x")))


@dataclass
class Line:
    count: int
    kind: ClassVar[str] = "line"


@dataclass
class Order:
    lines: list[Line]
    name: str
    on: date


@step
def place(order: Order) -> int:
    return order.lines[0].count


def test_a_dataclass_that_holds_a_reference_is_written_field_by_field() -> None:
    @flow
    def ordered():  # type: ignore[no-untyped-def]
        place(Order([Line(load([])), Line(3)], "x", date(2026, 1, 2)))

    found = ordered.workflow().check().steps[1]

    assert [need.of for need in found.needs] == ["load"]
    assert found.action is not None
    args = found.action.params["args"]["order"]
    [hole] = found.action.bindings
    assert args == {"lines": [{"count": {"${}": hole}}, {"count": 3}], "name": "x", "on": "2026-01-02"}
