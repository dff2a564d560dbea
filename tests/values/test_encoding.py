"""What a step returns, as JSON: what it becomes, and what is refused where."""

from __future__ import annotations

import collections
import enum
import ipaddress
import json
import sqlite3
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy
import pandas
import polars
import pyarrow
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mulligan
from mulligan.values.durations import format_duration, parse_duration
from mulligan.values.encoding import ValueRefused

from .sinks import FolderSink


class Color(enum.Enum):
    RED = "red"
    SIZE = (1, 2)


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Line:
    amount: Decimal
    tags: set[str] = field(default_factory=set)
    unit: ClassVar[str] = "EUR"


@dataclass(frozen=True, slots=True)
class Order:
    at: datetime
    lines: list[Line]


class Point(NamedTuple):
    x: int
    y: int


class Shot(msgspec.Struct, rename="camel", omit_defaults=True):
    taken_at: datetime
    file: Path
    size: Decimal | None = None


class User(pydantic.BaseModel):
    name: str = pydantic.Field(alias="userName")
    born: date
    home: Path


AT = datetime(2026, 11, 16, 3, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (AT, "2026-11-16T03:00:00.000005+00:00"),
        (AT.replace(tzinfo=None), "2026-11-16T03:00:00.000005"),
        (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T00:00:00+02:00"),
        (date(2026, 11, 16), "2026-11-16"),
        (time(3, 4), "03:04:00"),
        (timedelta(days=1, hours=2, milliseconds=500), "P1DT2H0.5S"),
        (timedelta(0), "PT0S"),
        (timedelta(seconds=-90), "-PT1M30S"),
        (Decimal("1.10"), "1.10"),
        (Fraction(3, 4), "3/4"),
        (PurePosixPath("/tmp/x"), "/tmp/x"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (ipaddress.ip_address("::1"), "::1"),
        (Color.RED, "red"),
        (Color.SIZE, [1, 2]),
        (Level.HIGH, 3),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({1, "a"}, ["a", 1]),
        (collections.deque([1]), [1]),
        (range(3), [0, 1, 2]),
        (b"\x00\xff", "AP8="),
        (bytearray(b"x"), "eA=="),
        (MappingProxyType({"a": (1, 2)}), {"a": [1, 2]}),
        ({date(2026, 1, 1): 1, Color.RED: 2, 3: 4, True: 5, None: 6}, None),
        (Point(1, 2), [1, 2]),
        (Order(AT, [Line(Decimal(1), {"b", "a"})]), None),
        (Shot(AT, Path("a.jpg")), {"takenAt": "2026-11-16T03:00:00.000005Z", "file": "a.jpg"}),
        (User(userName="ada", born=date(1815, 12, 10), home=Path("/srv/ada")), None),
        (numpy.int64(3), 3),
        (numpy.bool_(True), True),
        (numpy.float32(0.5), 0.5),
        (numpy.longdouble(0.5), 0.5),
        (numpy.str_("x"), "x"),
        (numpy.datetime64("2026-11-16T03:00:00.000000005"), "2026-11-16T03:00:00.000000005"),
        (numpy.timedelta64(90, "s"), "PT1M30S"),
        (pandas.Timestamp("2026-11-16", tz="UTC"), "2026-11-16T00:00:00+00:00"),
        (pandas.Timedelta("1h"), "PT1H"),
    ],
)
def test_a_value_that_is_not_json_has_one_form_in_json(sink: FolderSink, value: object, expected: Any) -> None:
    if isinstance(value, dict) and expected is None:
        expected = {"2026-01-01": 1, "red": 2, "3": 4, "true": 5, "null": 6}
    elif isinstance(value, Order):
        expected = {"at": AT.isoformat(), "lines": [{"amount": "1", "tags": ["a", "b"]}]}
    elif isinstance(value, User):
        expected = {"userName": "ada", "born": "1815-12-10", "home": "/srv/ada"}

    assert sink.encode(value) == expected
    assert sink.encode({"inner": [value]}) == {"inner": [expected]}


class Temperature(float):
    """A subclass with another text."""

    def __repr__(self) -> str:
        return "warm"


def test_subclasses_of_plain_types_are_their_values(sink: FolderSink) -> None:
    class Name(str):
        def __str__(self) -> str:
            return "another"

    assert sink.encode([Name("x"), Temperature(1.5), {1}]) == ["x", 1.5, [1]]


@dataclass
class Holder:
    rows: list[Any]


class Connected(msgspec.Struct):
    connection: Any


class Model(pydantic.BaseModel, arbitrary_types_allowed=True):
    connection: Any


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: {"rows": [0, Holder([1, sqlite3.connect(":memory:")])]},
            "the result['rows'][1].rows[1] is of type 'sqlite3.Connection', which cannot be stored; "
            "return JSON values, a dataclass, a model, a table or an array",
        ),
        (lambda: Connected(object()), "the result.connection is of type 'object', which cannot be stored"),
        (
            lambda: [Model(connection={"a": object()})],
            "the result[0].connection['a'] is of type 'object', which cannot be stored",
        ),
        (lambda: {(1, 2): Decimal(1)}, "the result has a key of type 'tuple', which is not JSON"),
        (lambda: {1: Decimal(1), "1": 2}, "the result has two keys that are '1' as JSON"),
        (lambda: [Decimal(1), float("nan")], "the result[1] is nan, which is not JSON"),
        (lambda: {"a": numpy.float64("inf"), "b": {1}}, "the result['a'] is inf, which is not JSON"),
        (lambda: [{1}, pandas.NaT], "the result[1] is NaT, which is not JSON; return None for a missing value"),
        (lambda: [{1}, numpy.datetime64("NaT")], "the result[1] is NaT, which is not JSON"),
        (lambda: [pandas.NA], "the result[0] is of type 'pandas.NAType', which cannot be stored; return None"),
        (lambda: [{1}, "\ud800"], "the result[1] contains a lone surrogate, which is not JSON"),
        (lambda: [{1}, 1 << 65], "the result[1] is a number of more than 64 bits, which cannot be stored"),
        (lambda: (one for one in [1]), "the result is of type 'generator', which cannot be stored; return list(…)"),
        (lambda: {"a": 1}.keys(), "the result is of type 'dict_keys', which cannot be stored; return list(…)"),
        (lambda: 1j, "the result is of type 'complex', which cannot be stored; return [z.real, z.imag]"),
        (lambda: print, "the result is of type 'builtin_function_or_method', which cannot be stored"),
        (lambda: Order, "the result is of type 'type', which cannot be stored"),
        (lambda: polars.DataFrame({"a": [1]}).lazy(), "the result is of type 'polars.LazyFrame', which cannot"),
        (lambda: pandas.Index([1]), "the result is of type 'pandas.Index', which cannot be stored; return a Series"),
        (lambda: pyarrow.array([1]), "the result is of type 'pyarrow.Int64Array', which cannot be stored; return a"),
        (
            lambda: {"x": numpy.array([object()])},
            "the result['x'] is of type 'numpy.ndarray' and cannot be stored: its elements are Python objects",
        ),
        (
            lambda: {"x": numpy.ma.array([1], mask=[True])},
            "the result['x'] is of type 'numpy.MaskedArray' and cannot be stored: it is a subclass of numpy.ndarray",
        ),
    ],
)
def test_what_cannot_be_carried_is_refused_with_its_place_and_type(sink: FolderSink, make: Any, message: str) -> None:
    value = make()

    with pytest.raises(ValueRefused) as caught:
        sink.encode(value)

    assert str(caught.value).startswith(message)
    assert sink.registered == {}


def test_a_value_that_contains_itself_is_refused(sink: FolderSink) -> None:
    value: list[Any] = [{1}]
    value.append(value)

    with pytest.raises(ValueRefused, match="is nested too deep, or contains itself"):
        sink.encode(value)


class _Answering(dict[str, Any]):
    """Has every attribute that it is asked for, as several libraries for settings do."""

    def __getattr__(self, name: str) -> dict[str, Any]:
        return {}


def test_an_object_that_has_every_attribute_is_not_taken_for_a_file(sink: FolderSink) -> None:
    assert sink.encode(_Answering(day=date(2026, 11, 16))) == {"day": "2026-11-16"}


class _Login(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr


class _ShownLogin(_Login):
    @pydantic.field_serializer("password", when_used="json")
    def show(self, password: pydantic.SecretStr) -> str:
        return password.get_secret_value()


def test_a_secret_that_pydantic_would_replace_by_asterisks_is_refused(sink: FolderSink) -> None:
    with pytest.raises(ValueRefused, match=r"the result\[0\]\.password is a secret"):
        sink.encode([_Login(name="ada", password=pydantic.SecretStr("x"))])

    shown = _ShownLogin(name="ada", password=pydantic.SecretStr("x"))
    assert sink.encode(shown) == {"name": "ada", "password": "x"}


@pytest.mark.parametrize(
    "value",
    [numpy.timedelta64(1_500, "ns"), numpy.timedelta64(2**62, "s"), pandas.Timedelta("1.123456789s")],
)
def test_a_duration_that_would_not_be_exact_is_refused(sink: FolderSink, value: object) -> None:
    with pytest.raises(ValueRefused, match="microsecond"):
        sink.encode(value)


def test_no_file_is_registered_for_a_result_that_is_refused_later(sink: FolderSink) -> None:
    with pytest.raises(ValueRefused):
        sink.encode({"table": polars.DataFrame({"a": [1]}), "other": object()})

    assert sink.registered == {}


def test_files_are_named_after_the_fields_that_they_are_in(sink: FolderSink) -> None:
    frame = polars.DataFrame({"a": [1]})

    sink.encode({"train": frame, "parts": [frame], "a b/ü": frame})

    assert [name.rpartition("/")[2] for name in sink.registered] == ["train.parquet", "0.parquet", "a_b.parquet"]


def test_large_parts_beside_a_table_become_files_of_their_own(sink: FolderSink) -> None:
    rows = [{"id": number} for number in range(10_000)]

    output = sink.encode({"table": polars.DataFrame({"a": [1]}), "meta": {"rows": rows, "n": 3}})

    assert len(json.dumps(output)) < 1000
    assert output["meta"]["$artifact"]["format"] == "json"
    assert json.loads(sink.read_bytes(output["meta"]["$artifact"])) == {"rows": rows, "n": 3}


def test_a_large_result_without_tables_stays_in_one_piece(sink: FolderSink) -> None:
    value = [Decimal(number) for number in range(20_000)]

    assert sink.encode(value) == [str(number) for number in range(20_000)]
    assert sink.registered == {}


@given(st.timedeltas())
def test_a_duration_is_exact_both_ways(duration: timedelta) -> None:
    text = format_duration(duration)

    assert timedelta(**parse_duration(text)) == duration
    assert msgspec.convert(text, timedelta) == duration


def test_the_modules_of_values_import_no_library_and_no_typing() -> None:
    program = f"import sys; sys.path.append({str(Path(mulligan.__file__).parent.parent)!r}); "
    program += "import mulligan.values.encoding, mulligan.values.annotations, mulligan.values.files; "
    program += "print([name for name in ('typing', 'msgspec', 'numpy', 'pandas') if name in sys.modules])"

    found = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
