"""What a database gives, as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from mulligan import StepError
from mulligan.worker.databases.values import Rows, as_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        ("text\x00", "text\x00"),
        (9223372036854775807, 9223372036854775807),
        (-9223372036854775808, -9223372036854775808),
        # More than 64 bits: no reader of JSON would be sure to keep them.
        (9223372036854775808, "9223372036854775808"),
        (1.5, 1.5),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        # A decimal is a number where that is the same.
        (Decimal("12.50"), 12.5),
        (Decimal("42"), 42),
        (Decimal("42.000"), 42),
        (Decimal("1E+3"), 1000),
        (Decimal("0.1"), 0.1),
        (Decimal("0.12345678901234567890"), "0.12345678901234567890"),
        (Decimal("92233720368547758080"), "92233720368547758080"),
        (Decimal("NaN"), "NaN"),
        (Decimal("-Infinity"), "-Infinity"),
        (Decimal("1E+100000"), "1E+100000"),
        (date(2030, 1, 31), "2030-01-31"),
        (datetime(2030, 1, 31, 9, 0, 0, 500, UTC), "2030-01-31T09:00:00.000500+00:00"),
        (time(9, 0), "09:00:00"),
        (timedelta(days=1, seconds=90, microseconds=500000), "P1DT90.5S"),
        (-timedelta(seconds=1), "-P0DT1S"),
        (b"\x00\xff", "AP8="),
        (memoryview(b"a"), "YQ=="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([1, (2, b"a")], [1, [2, "YQ=="]]),
        ({1: Decimal("0.5")}, {"1": 0.5}),
    ],
)
def test_a_value_loses_nothing_on_its_way_into_json(value: Any, expected: Any) -> None:
    found = as_json(value)

    assert (found, type(found)) == (expected, type(expected))


def test_rows_are_objects_with_their_columns_in_order() -> None:
    rows = Rows(["b", "a"])
    rows.add((1, "ü"))
    rows.add((None, "x"))

    assert rows.encoded() == '[{"b": 1, "a": "ü"},{"b": null, "a": "x"}]'
    assert json.loads(Rows([]).encoded()) == []


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(StepError) as refused:
        Rows(["id", "name", "id"])

    assert refused.value.report() == {
        "code": "INPUT_INVALID",
        "message": "two columns are named 'id': rename one with 'as'",
        "retryable": False,
    }


def test_rows_end_at_64_mib_of_json() -> None:
    rows = Rows(["text"])
    mebibyte = ("x" * (1 << 20),)

    with pytest.raises(StepError) as refused:
        for _ in range(64):
            rows.add(mebibyte)

    assert refused.value.report() == {
        "code": "OUTPUT_INVALID",
        "message": "the rows have more than 67108864 bytes as JSON, the limit: select fewer, or set 'rows: none'",
        "retryable": False,
    }
