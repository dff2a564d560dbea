"""What a function gets: arguments as its annotations say, or one clear sentence why not."""

from __future__ import annotations

import enum
import inspect
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar

import msgspec
import pandas
import polars
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.values.annotations import has_typed_parameters
from mulligan.values.decoding import ArgumentMisfit, convert_arguments, convert_value

from .sinks import FolderSink

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Price(enum.Enum):
    LOW = Decimal("1.50")


@dataclass
class Line:
    amount: Decimal
    unit: str = "EUR"


@dataclass(frozen=True, kw_only=True)
class Order:
    at: datetime
    lines: list[Line]
    note: Optional[str] = None  # noqa: UP045
    total: Decimal = field(init=False, default=Decimal(0))


@dataclass
class Node:
    name: str
    below: list[Node] = field(default_factory=list)


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("it is not positive")


@dataclass
class Circle:
    radius: float


@dataclass
class Square:
    side: float


class Point(NamedTuple):
    x: int
    y: int = 0


class Row(TypedDict, total=False):
    at: datetime
    name: str


class Plain(TypedDict):
    name: str


class Shot(msgspec.Struct, rename="camel"):
    taken_at: datetime
    size: Decimal | None = None
    file: Path = Path()


class User(pydantic.BaseModel, strict=True):
    name: str = pydantic.Field(alias="userName")
    born: date
    tags: set[str] = set()


Celsius = NewType("Celsius", float)
AT = datetime(2026, 11, 16, 3, tzinfo=UTC)
ORDER = Order(at=AT, lines=[Line(Decimal("1.10")), Line(Decimal(2), "USD")])


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, AT),
        (date, date(2026, 11, 16)),
        (time, time(3, 4)),
        (timedelta, timedelta(days=1, seconds=5)),
        (Decimal, Decimal("1.10")),
        (Path, Path("/tmp/x")),
        (uuid.UUID, uuid.UUID(int=7)),
        (Color, Color.RED),
        (Price, Price.LOW),
        (bytes, b"\x00\xff"),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (tuple[int, ...], (1, 2, 3)),
        (tuple[date, int], (date(2026, 1, 1), 2)),
        (tuple, (1, 2)),
        (list[datetime], [AT]),
        (Sequence[Decimal], [Decimal(1)]),
        (dict[str, Decimal], {"a": Decimal(1)}),
        (dict[int, str], {1: "a"}),
        (dict[date, Line], {date(2026, 1, 1): Line(Decimal(1))}),
        (Mapping[Color, int], {Color.RED: 1}),
        (Optional[datetime], None),  # noqa: UP045
        (datetime | None, AT),
        (str | datetime, "2026-11-16"),
        (Circle | Square, Square(2.0)),
        (Circle | dict, Circle(1.0)),
        (Annotated[Decimal, "in EUR"], Decimal(3)),
        (Literal[Color.RED], Color.RED),
        (Order, ORDER),
        (Node, Node("a", [Node("b")])),
        (list[Point], [Point(1, 2)]),
        (Row, {"at": AT, "name": "x"}),
        (Shot, Shot(AT, Decimal("1.5"), Path("a.jpg"))),
        (User, User(userName="ada", born=date(1815, 12, 10), tags={"a"})),
        (dict[str, User | None], {"a": User(userName="ada", born=date(1815, 12, 10)), "b": None}),
    ],
)
def test_what_one_step_returns_another_gets_back_by_its_annotation(
    sink: FolderSink, annotation: Any, value: Any
) -> None:
    found = convert_value(sink.encode(value), annotation)

    assert found == value
    assert type(found) is type(value)


@settings(max_examples=examples(40, 100))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_an_annotation_of_json_types_leaves_every_value_as_it_is(value: Any) -> None:
    for annotation in (str, int, float, bool, list, dict, list[int], dict[str, Any], str | None, Any, Celsius, Plain):
        assert convert_value(value, annotation) is value


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (datetime, "yesterday", 'must be a date and time in ISO 8601, and is "yesterday"'),
        (datetime, 3, "must be a date and time in ISO 8601, and is 3"),
        (Decimal, "abc", 'must be a decimal number, and is "abc"'),
        (Decimal, True, "must be a decimal number, and is true"),
        (Path, 3, "must be the text of a path, and is 3"),
        (Color, "green", 'must be one of "red", "blue", and is "green"'),
        (bytes, "ü", 'must be bytes as base64 text, and is "ü"'),
        (set[int], {"a": 1}, 'must be a list, and is {"a": 1}'),
        (tuple[int, Decimal], [1], "must be a list of 2 values, and is [1]"),
        (tuple[int, Decimal], ["1", "2"], '[0] must be an integer, and is "1"'),
        (dict[int, str], {"a": "b"}, "['a'] has a key that must be an integer"),
        (list[Line], [{"amount": 1}, {"amount": "x"}], '[1].amount must be a decimal number, and is "x"'),
        (Line, {"amount": 1, "unit": 3}, ".unit must be text, and is 3"),
        (Line, {"amount": 1, "unti": "EUR"}, " has the field 'unti', which Line does not have"),
        (Line, {"unit": "EUR"}, " lacks the field 'amount' of Line"),
        (Line, [1], " must be an object for Line, and is [1]"),
        (Positive, {"number": 0}, " is refused by Positive: ValueError: it is not positive"),
        (Node, {"name": "a", "below": [{"name": 1}]}, ".below[0].name must be text, and is 1"),
        (Circle | None, {"radius": "big"}, '.radius must be a number, and is "big"'),
        (Circle | None, 3, " must be Circle or null, and is 3"),
        (Point, [1, "2"], '.y must be an integer, and is "2"'),
        (Row, {"at": "x"}, '.at must be a date and time in ISO 8601, and is "x"'),
        (Shot, {"takenAt": "x"}, ".takenAt does not fit Shot: invalid RFC3339 encoded datetime"),
        (User, {"userName": 3, "born": "1815-12-10"}, ".userName does not fit User: input should be a valid string"),
        (list[Decimal], ["1", "x" * 200], '[1] must be a decimal number, and is "' + "x" * 59 + "…"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_field(annotation: Any, value: Any, reason: str) -> None:
    def load(order: Any) -> None: ...

    load.__annotations__["order"] = annotation

    with pytest.raises(ArgumentMisfit) as caught:
        convert_arguments(load, {"order": value})

    joined = "" if reason.startswith((".", "[", " ")) else " "
    assert str(caught.value) == f"argument 'order' does not fit: order{joined}{reason}"


def test_an_integer_fits_where_a_number_is_wanted() -> None:
    found = convert_value({"radius": 2}, Circle)

    assert found == Circle(2.0)
    assert isinstance(found.radius, float)


def test_an_annotation_that_cannot_be_resolved_is_ignored_and_the_others_are_not() -> None:
    def load(a: Missing, b: Decimal, *rest: Decimal, c: list[Missing], **more: Decimal) -> None: ...

    found = convert_arguments(load, {"a": "1", "b": "1", "c": ["1"], "d": "1"})

    assert found == {"a": "1", "b": Decimal(1), "c": ["1"], "d": "1"}


def test_a_class_that_is_not_known_is_left_alone() -> None:
    class Client:
        pass

    assert convert_value({"a": 1}, Client) == {"a": 1}
    assert convert_value(["a"], list[Client]) == ["a"]


def test_wrapped_functions_methods_and_init_only_fields_work() -> None:
    @dataclass
    class Doubled:
        base: InitVar[int]
        value: int = 0

        def __post_init__(self, base: int) -> None:
            self.value = 2 * base

    class Loader:
        @staticmethod
        def load(at: datetime) -> None: ...

        @classmethod
        def load_all(cls, at: datetime) -> None: ...

    for function in (Loader.load, Loader.load_all):
        assert convert_arguments(function, {"at": AT.isoformat()}) == {"at": AT}
    assert convert_value({"base": 2}, Doubled).value == 4


def _plain(a, b: str, c: list[dict[str, Any]], d: int | None = None, *, e: dict) -> Decimal: ...  # type: ignore


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b, **c): ...", False),
        ("def f(a: str, b: int | None, c: list[dict], d: dict[str, float]) -> Decimal: ...", False),
        ("def f(a: 'list[dict[str, Any]]', b: 'typing.Optional[int]'): ...", False),
        ("def f(a: Decimal): ...", True),
        ("def f(a: 'Decimal'): ...", True),
        ("def f(a: dict[int, str]): ...", True),
        ("def f(a: tuple): ...", True),
        ("def f(a: list[set]): ...", True),
        ("class f: a: int", False),
    ],
)
def test_functions_without_types_of_their_own_are_found_at_once(source: str, expected: bool) -> None:
    names: dict[str, Any] = {"Decimal": Decimal, "Any": Any}
    exec(source, names)

    assert has_typed_parameters(names["f"]) == expected


def test_what_is_found_to_be_plain_at_once_has_no_converter() -> None:
    assert not has_typed_parameters(_plain)
    assert not has_typed_parameters(len)
    assert convert_arguments(_plain, {"b": 3}) == {"b": 3}


def test_a_function_is_inspected_once() -> None:
    reads = []

    class Annotations(dict[str, Any]):
        def items(self) -> Any:
            reads.append(1)
            return super().items()

    def load(at: datetime) -> None: ...

    load.__annotations__ = Annotations(inspect.get_annotations(load))
    convert_arguments(load, {"at": AT.isoformat()})
    convert_arguments(load, {"at": AT.isoformat()})

    assert len(reads) == 1


# -- as it was -------------------------------------------------------------------------------------------------------

T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    items: list[T]
    first: Optional[T] = None  # noqa: UP045


@dataclass
class Days(Page[date]):
    pass


class Pair(msgspec.Struct, Generic[T]):
    left: T


@dataclass
class Short:
    amount: int


@dataclass
class Long:
    amount: int
    unit: str = "EUR"


@dataclass
class Amount:
    amount: int


@dataclass(frozen=True)
class Counted:
    words: list[str]
    count: int = field(init=False)
    seen: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", len(self.words))


class Instant(enum.Enum):
    START = datetime(2026, 1, 1, tzinfo=UTC)
    CORNER = (1, (2, 3))


def _seen(counted: Counted) -> Counted:
    object.__setattr__(counted, "seen", 7)
    return counted


DAY = date(2026, 11, 16)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (_seen(Counted(["a", "b"])), Counted),
        (Page([DAY], DAY), Page[date]),
        (Days([DAY]), Days),
        (Pair(DAY), Pair[date]),
        (DAY, datetime | date),
        (datetime(2026, 11, 16), date | datetime),
        ([Short(1), Long(1), None], list[Long | Short | None]),
        ([Short(1), Long(1)], list[Short | Long]),
        (Instant.START, Instant),
        (Instant.CORNER, Instant),
        (pandas.Timestamp("2026-11-16T03:00:00.123456789Z"), pandas.Timestamp),
    ],
)
def test_a_value_comes_back_as_it_was(sink: FolderSink, value: object, annotation: Any) -> None:
    back = convert_value(sink.encode(value), annotation)

    assert (back, type(back)) == (value, type(value))


@pytest.mark.parametrize(
    ("value", "annotation", "kinds"),
    [(Amount(1), Short | Amount, "Short and Amount"), (Decimal(1234), bytes | Decimal, "bytes and Decimal")],
)
def test_a_value_that_could_be_of_two_types_is_refused(
    sink: FolderSink, value: object, annotation: Any, kinds: str
) -> None:
    with pytest.raises(ArgumentMisfit, match=f"fits {kinds}, so it is not known which it was"):
        convert_value(sink.encode(value), annotation)


def test_a_table_in_a_union_stays_of_its_library(sink: FolderSink) -> None:
    stored = sink.with_files(sink.encode(polars.DataFrame({"a": [1]})))

    assert isinstance(convert_value(stored, pandas.DataFrame | polars.DataFrame), polars.DataFrame)
