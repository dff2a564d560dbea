"""The parameters of a flow are its inputs: annotations are types, defaults are defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum, IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional, TypedDict

import pytest

import mulligan
from mulligan import flow
from mulligan.core.model.workflow import Input
from mulligan.errors import LanguageError

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


@dataclass
class Row:
    n: int = 1


class Point(TypedDict):
    x: int


class Target(Enum):
    STAGING = "staging"
    PROD = "prod"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


UserId = NewType("UserId", int)


def inputs_of(function: Any) -> dict[str, Input]:
    return flow(function).workflow().check().inputs


def test_annotations_give_the_types() -> None:
    def typed(
        text: str,
        number: int,
        ratio: float,
        flag: bool,
        rows: list[dict[str, Any]],
        pair: tuple[int, int],
        names: Sequence[str],
        labels: dict[str, str],
        more: Mapping[str, int],
        row: Row,
        point: Point,
        path: Path,
        day: date,
        at: datetime,
        user: UserId,
        number_or_ratio: int | float,
        anything: Any,
        unknown: Unknown,
        plain,  # type: ignore[no-untyped-def]
        mixed: int | str,
        maybe: Optional[int],  # noqa: UP045
        maybe_text: str | None,
    ) -> None:
        mulligan.shell("only", f"echo {number}")

    types = {name: one.type for name, one in inputs_of(typed).items()}

    assert types == {
        "text": "string",
        "number": "integer",
        "ratio": "number",
        "flag": "boolean",
        "rows": "array",
        "pair": "array",
        "names": "array",
        "labels": "object",
        "more": "object",
        "row": "object",
        "point": "object",
        "path": "string",
        "day": "string",
        "at": "string",
        "user": "integer",
        "number_or_ratio": "number",
        "anything": "any",
        "unknown": "any",
        "plain": "any",
        "mixed": "any",
        "maybe": "any",
        "maybe_text": "any",
    }


def test_choices_are_an_enum() -> None:
    def chosen(
        word: Literal["a", "b"],
        target: Target = Target.STAGING,
        level: Level = Level.LOW,
        maybe: Literal["a"] | None = None,
        described: Annotated[str, "where to deploy"] = "here",
    ) -> None:
        mulligan.shell("only", "true")

    assert inputs_of(chosen) == {
        "word": Input(type="string", enum=("a", "b")),
        "target": Input(type="string", enum=("staging", "prod"), default="staging", has_default=True),
        "level": Input(type="integer", enum=(1, 2), default=1, has_default=True),
        "maybe": Input(type="any", enum=("a", None), default=None, has_default=True),
        "described": Input(type="string", default="here", has_default=True, description="where to deploy"),
    }


def test_a_default_says_the_type_of_a_parameter_without_annotation() -> None:
    def defaults(tag="1.10", n=3, ratio=1.5, flag=False, rows=[1], row=Row(2), nothing=None) -> None:  # type: ignore[no-untyped-def]  # noqa: B006, B008
        mulligan.shell("only", "true")

    assert {name: (one.type, one.default) for name, one in inputs_of(defaults).items()} == {
        "tag": ("string", "1.10"),
        "n": ("integer", 3),
        "ratio": ("number", 1.5),
        "flag": ("boolean", False),
        "rows": ("array", [1]),
        "row": ("any", {"n": 2}),
        "nothing": ("any", None),
    }


def takes_keywords(**named: str) -> None: ...


def takes_more(*more: str) -> None: ...


def takes_position(url: str, /) -> None: ...


def has_a_default_that_is_no_value(url: Any = object()) -> None: ...  # noqa: B008


def has_the_wrong_default(n: int = "three") -> None:  # type: ignore[assignment]
    mulligan.shell("only", f"echo {n}")


@pytest.mark.parametrize(
    ("function", "code", "message"),
    [
        (takes_keywords, "function", "flow 'takes_keywords' has a parameter '**'"),
        (takes_more, "function", "flow 'takes_more' has the parameter '*more'"),
        (takes_position, "function", "flow 'takes_position' has the parameter 'url, /'"),
        (
            has_a_default_that_is_no_value,
            "value",
            "the default of 'url' is a object, and a flow is built of plain values",
        ),
        (
            has_the_wrong_default,
            "input",
            "the default of input 'n' is a string, and its type is integer",
        ),
    ],
)
def test_what_cannot_be_an_input_is_refused(function: Any, code: str, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        inputs_of(function)

    [problem] = caught.value.problems
    assert (problem.code, problem.message) == (f"language.{code}", message)
    assert (problem.file, problem.line) == (__file__, function.__code__.co_firstlineno)


def test_further_keys_of_an_input_must_name_a_parameter() -> None:
    @flow(inputs={"ulr": {"description": "x"}})
    def named(url: str) -> None: ...

    with pytest.raises(LanguageError, match="flow 'named' has no parameter 'ulr'"):
        named.workflow()
