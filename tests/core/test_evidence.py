"""What an approval shows besides its question: recognised, bounded, and nothing but text."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.history.evidence import COLUMNS_MAX, EVIDENCE_MAX, Evidence, evidence_lines, evidence_of

FILE = {"name": "1/frame/1/output.parquet", "size": 2130, "sha256": "0" * 64, "format": "parquet"}
FRAME = {**FILE, "type": "pandas.DataFrame", "rows": 400, "columns": 12}


def one(value: Any, name: str = "sales") -> Evidence:
    (found,) = evidence_of({"evidence": {name: value}})
    return found


def text_of(value: Any) -> str:
    return "\n".join(evidence_lines(one(value)))


def test_rows_are_a_table_of_all_their_keys():
    rows = [{"region": "west", "sold": 12}, {"region": "east", "change": None}]

    assert text_of(rows) == "sales:\n  region  sold  change\n  west    12\n  east          null"


def test_a_table_is_bounded_in_rows_columns_and_cells():
    found = one([{f"c{number}": "x" * 500 for number in range(50)}] * 1000)

    assert (len(found.rows), len(found.columns), found.left_out) == (10, COLUMNS_MAX, 990)
    assert {len(cell) for row in found.rows for cell in row} == {40}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("@@ -1 +1 @@\n-a\n+b", "diff"),
        ("- a list\n+ of points", "text"),
        ({"mean": 12.5}, "text"),
        ([], "text"),
        ([1, 2], "text"),
        ([{"a": 1}, 2], "text"),
        (None, "text"),
        (FRAME, "file"),
        ({"$artifact": FRAME}, "file"),
    ],
)
def test_a_piece_is_what_it_looks_like(value: Any, kind: str):
    assert one(value).kind == kind


def test_a_file_is_named_with_what_it_is():
    found = one(FRAME)

    assert found.artifact == FRAME["name"]
    assert found.lines == ["output.parquet: table 400 × 12 (parquet, 2KiB)"]


def test_a_data_frame_is_shown_by_its_recorded_rows():
    preview = {"columns": [["region", "str"], ["a\x1b[31m<b>", "int"]], "rows": [["west", "1"], ["east", "2"]]}

    found = one({**FRAME, "preview": preview})

    assert (found.kind, found.left_out, found.artifact) == ("table", 398, FRAME["name"])
    assert list(evidence_lines(found, 8)) == [
        "sales:",
        "  output.parquet: table 400 × 12 (parquet, 2KiB)",
        "  the first 2 columns:",
        "  region  a<b>",
        "  west    1",
        "  east    2",
        "  … and 398 more rows",
    ]


@pytest.mark.parametrize(
    ("preview", "lines"),
    [
        ({"columns": [["region", "str"]]}, 2),
        ({"columns": [["region", "str"]], "rows": [[]]}, 2),
        ({}, 1),
        ({"columns": [["a"]]}, 1),
        (7, 1),
    ],
)
def test_a_data_frame_without_rows_is_named(preview: Any, lines: int):
    found = one({**FRAME, "preview": preview})

    assert (found.kind, len(found.lines)) == ("file", lines)


def test_a_long_text_says_how_much_is_left_out():
    lines = list(evidence_lines(one("line\n" * 1000), 8))

    assert (len(lines), lines[-1]) == (10, "  … and 992 more lines")


@pytest.mark.parametrize("value", ["a\x1b[31mb", [{"k\x1b[31m": "\x07\r\nb"}], {"a": "\x00\u202e"}])
def test_nothing_reaches_a_terminal_that_it_could_obey(value: Any):
    shown = text_of(value)

    assert all(sign.isprintable() or sign == "\n" for sign in shown)


@pytest.mark.parametrize("given", [None, 7, "text", [], {}])
def test_what_is_no_mapping_shows_nothing(given: Any):
    assert evidence_of({"evidence": given}) == []


def test_only_so_many_pieces_are_shown():
    assert len(evidence_of({"evidence": {str(number): 1 for number in range(100)}})) == EVIDENCE_MAX
