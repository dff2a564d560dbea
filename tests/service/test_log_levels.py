"""Which lines of a log are records, of which level, and which belong to them."""

from __future__ import annotations

import pytest

from mulligan.service.logs.log_levels import LevelFilter, record_of

AT = "2026-11-19T20:40:11.289Z"
LOG = f"""\
in front
{AT} DEBUG sales: a
{AT} ERROR sales.load: b
Traceback (most recent call last):
{AT} INFO sales: c
{AT} said rows=12
{AT} said level=warning rows=12
{AT} NOTICE own: d
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{AT} WARNING a.b: text", ("warning", "a.b")),
        (f"{AT} INFO root: ", ("info", "root")),
        (f"{AT} loaded rows=12", ("info", "")),
        (f"{AT} loaded level=error", ("error", "")),
        (f"{AT} ERROR without a logger", ("info", "")),
        ("ERROR a: text", None),
        ("2026-11-19 INFO a: text", None),
        ("", None),
    ],
)
def test_a_record_begins_with_a_time(line: str, expected: tuple[str, str] | None) -> None:
    found = record_of(line.encode())

    assert (found and (found["at"], found["level"], found["logger"])) == (expected and (AT, *expected))


@pytest.mark.parametrize(
    ("level", "kept"), [("debug", "abTcs1d"), ("info", "bTcs1d"), ("warning", "bT1"), ("error", "bT"), ("critical", "")]
)
def test_a_filter_keeps_a_level_and_above_with_the_lines_behind(level: str, kept: str) -> None:
    ends = {"a": "sales: a", "b": "load: b", "T": "last):", "c": "sales: c", "s": "said rows=12", "d": "own: d"}
    ends["1"] = "warning rows=12"
    whole, by_line = LevelFilter(level), LevelFilter(level)

    found = whole.keep(LOG.encode()).decode().splitlines()

    assert len(found) == len(kept)
    assert all(line.endswith(ends[one]) for line, one in zip(found, kept, strict=True))
    pieces = [by_line.keep(line) for line in LOG.encode().splitlines(keepends=True)]
    assert b"".join(pieces).decode().splitlines() == found


def test_what_cannot_be_decoded_is_kept_as_it_is() -> None:
    line = f"{AT} ERROR a: ".encode() + b"\xff\xfe"

    assert LevelFilter("error").keep(line) == line
