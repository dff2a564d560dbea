"""What an approval shows besides its question: texts, tables, diffs and files, each bounded and made of plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from mulligan.core.model.artifacts import KEY, is_artifact
from mulligan.core.model.text.artifact_words import describe_file
from mulligan.core.model.text.formatting import escape_unprintable, single_line, strip_control_characters
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.text.table_preview import Table, read_table

EVIDENCE_MAX = 10
LINES_MAX, LINE_CHARS_MAX = 40, 200
ROWS_MAX, COLUMNS_MAX, CELL_CHARS_MAX, NAME_CHARS_MAX = 10, 12, 40, 60
# No SVG, which is a document with scripts.
IMAGE_ENDINGS, IMAGE_BYTES_MAX = (".png", ".jpg", ".jpeg"), 4 << 20
# How many lines of one piece a notice has.
NOTICE_LINES_MAX = 8
_DESCRIPTION = frozenset(("name", "size", "sha256", "format"))
_HUNK = lazy_regex(r"^@@ .* @@", 0)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One piece: lines of text, or a table, which may have lines too. `left_out`: lines or rows that it has besides."""

    name: str
    kind: Literal["text", "diff", "table", "file"]
    lines: list[str] = []
    columns: list[str] = []
    rows: list[list[str]] = []
    left_out: int = 0
    # The name of the artifact of a file, or of a stored table.
    artifact: str = ""
    # The SHA-256 of a file that by its name and its size is a picture to show.
    image: str = ""


def evidence_of(asked: Mapping[str, Any]) -> list[Evidence]:
    """What an approval shows, by what it was asked with."""
    given = asked.get("evidence")
    pieces = list(given.items()) if isinstance(given, Mapping) else []
    return [_piece(_cell(name, NAME_CHARS_MAX), value) for name, value in pieces[:EVIDENCE_MAX]]


def _piece(name: str, value: Any) -> Evidence:
    if (described := _description(value)) is not None:
        stored = str(described.get("name", ""))
        words = describe_file({KEY: described}) or "too large to be shown here"
        line = _line(f"{stored.rpartition('/')[2]}: {words}")
        if (frame := read_table(described)) is not None and frame.preview.columns:
            return _frame(name, line, frame, stored)
        size = described["size"]
        is_image = stored.lower().endswith(IMAGE_ENDINGS) and isinstance(size, int) and size <= IMAGE_BYTES_MAX
        image = str(described["sha256"]) if is_image else ""
        return Evidence(name=name, kind="file", lines=[line], artifact=stored, image=image)
    if isinstance(value, list) and value and all(isinstance(row, dict) and _description(row) is None for row in value):
        return _table(name, value)
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    lines = text.splitlines()
    is_diff = isinstance(value, str) and any(map(_HUNK.match, lines))
    kept = [_line(one) for one in lines[:LINES_MAX]]
    return Evidence(name=name, kind="diff" if is_diff else "text", lines=kept, left_out=len(lines) - len(kept))


def _frame(name: str, line: str, frame: Table, artifact: str) -> Evidence:
    """A stored table by its recorded first rows. What it is stands below its name, and the table below that."""
    preview = frame.preview
    count = min(len(preview.columns), COLUMNS_MAX, *map(len, preview.rows)) if preview.rows else 0
    if not count:
        heads = ", ".join(_cell(column, CELL_CHARS_MAX) for column, _ in preview.columns)
        return Evidence(name=name, kind="file", lines=[line, _line(f"columns: {heads}")], artifact=artifact)
    left_out = max(0, (frame.columns or count) - (count - min(preview.index, count)))
    return Evidence(
        name=name,
        kind="table",
        lines=[line, *([f"the first {count} columns:"] if left_out else [])],
        columns=[_cell(column, CELL_CHARS_MAX) for column, _ in preview.columns[:count]],
        rows=[[_cell(cell, CELL_CHARS_MAX) for cell in row[:count]] for row in preview.rows[:ROWS_MAX]],
        left_out=max(0, (frame.rows or 0) - len(preview.rows)),
        artifact=artifact,
    )


def _description(value: Any) -> dict[str, Any] | None:
    """What is said of a stored file: where it is referred to, or as an expression has read it."""
    found = value[KEY] if is_artifact(value) else value
    return found if isinstance(found, dict) and found.keys() >= _DESCRIPTION else None


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> Evidence:
    shown = rows[:ROWS_MAX]
    keys = list(dict.fromkeys(key for row in shown for key in row))[:COLUMNS_MAX]
    cells = [[_cell(row[key], CELL_CHARS_MAX) if key in row else "" for key in keys] for row in shown]
    columns = [_cell(key, CELL_CHARS_MAX) for key in keys]
    return Evidence(name=name, kind="table", columns=columns, rows=cells, left_out=len(rows) - len(shown))


def _cell(value: Any, chars_max: int) -> str:
    described = _description(value)
    if described is not None:
        text = describe_file({KEY: described})
    else:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = escape_unprintable(single_line(strip_control_characters(text))).strip()
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _line(text: str) -> str:
    text = escape_unprintable(strip_control_characters(text.replace("\t", "    "))).rstrip()
    return text if len(text) <= LINE_CHARS_MAX else f"{text[: LINE_CHARS_MAX - 1]}…"


def evidence_lines(one: Evidence, lines_max: int = LINES_MAX) -> Iterator[str]:
    """A piece as lines of text, below its name."""
    lines = [*one.lines, *aligned_rows(one.columns, one.rows)] if one.kind == "table" else one.lines
    yield f"{one.name}:"
    yield from (f"  {line}" for line in lines[:lines_max])
    left_out = one.left_out + max(0, len(lines) - lines_max)
    if left_out:
        yield f"  … and {left_out:,} more {'rows' if one.kind == 'table' else 'lines'}"


def aligned_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: its header, and its rows. Columns that the rows do not have are left out."""
    columns = columns[: min(map(len, rows), default=len(columns))]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (columns, *rows)
    ]
