"""What is recorded of a table beside its file: its columns with their types and its first rows, bounded plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import msgspec

from mulligan.core.model.text.formatting import (
    escape_unprintable,
    pluralize,
    quote_names,
    single_line,
    strip_control_characters,
)

COLUMNS_MAX, CHARS_MAX = 40, 40
# As JSON: the columns with their types, and all of it.
HEAD_BYTES_MAX, BYTES_MAX = 900, 1536
# How many changes of types are named.
NAMED_MAX = 5
# Of all tables in one result.
IN_RESULT_BYTES_MAX = 32 << 10
# What is given up first: long cells, then columns, then rows.
_SIZES = (*product((5, 3), (12, 8, 5, 3), (40, 24, 16)),)


class TablePreview(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first columns, and of the first of them the first rows. Names, types and cells are cut and redacted."""

    # Name and type.
    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    # How many of the first columns are the index, which the number of columns of a table does not count.
    index: int = 0

    def has_all_columns(self, count: int | None) -> bool:
        """Whether none of the columns of the table is left out."""
        return count is not None and len(self.columns) - self.index >= count


def bounded_preview(found: TablePreview) -> TablePreview:
    """Of what the process of a step wrote as much as may be stored."""
    columns = [(_cut(name), _cut(kind)) for name, kind in found.columns[:COLUMNS_MAX]]
    while columns and _size(columns) > HEAD_BYTES_MAX:
        columns.pop()
    index = min(max(found.index, 0), len(columns))
    bare = TablePreview(tuple(columns), (), index)
    for rows_max, cells_max, chars_max in _SIZES:
        shown = found.rows[:rows_max]
        cells = min((cells_max, len(columns), *map(len, shown)))
        rows = tuple(tuple(_cut(cell, chars_max) for cell in row[:cells]) for row in shown)
        preview = msgspec.structs.replace(bare, rows=rows)
        if _size(preview) <= BYTES_MAX:
            return preview
    return bare


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def _cut(text: str, chars_max: int = CHARS_MAX) -> str:
    """In one line, without anything that a terminal or a reader would take for more than text."""
    text = escape_unprintable(single_line(strip_control_characters(text))).strip()
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


# -- what has changed ------------------------------------------------------------------------------------------------


class Table(msgspec.Struct, frozen=True):
    """A table as the description of its file says it."""

    preview: TablePreview
    rows: int | None = None
    columns: int | None = None


def read_table(description: Any) -> Table | None:
    """The table that the description of an artifact is of; None if it has no preview."""
    try:
        return msgspec.convert(description, Table)
    except msgspec.ValidationError:
        return None


def table_changes(before: Table, now: Table) -> list[str]:
    """What is different, in a few sentences; the first one is about the rows.

    Columns that are not recorded of a wide table are not compared.
    """
    had, has = _by_name(before.preview.columns), _by_name(now.preview.columns)
    added = [key[0] for key in has if key not in had] if before.preview.has_all_columns(before.columns) else []
    removed = [key[0] for key in had if key not in has] if now.preview.has_all_columns(now.columns) else []
    retyped = [f"{key[0]} {had[key]} → {kind}" for key, kind in has.items() if had.get(key, kind) != kind]
    found = [*_rows_changed(before.rows, now.rows)]
    has_all = (now.columns or 0) - (before.columns or 0) == len(added) - len(removed)
    if not has_all:
        found.append(f"{before.columns or 0:,} → {now.columns or 0:,} columns")
    for names, what in ((added, "added"), (removed, "removed")):
        if names:
            # Of wide tables some columns are not recorded, so that these may be only some of them.
            count = pluralize(len(names), "column") if has_all else "columns"
            found.append(f"{count} {what}: {quote_names(names) if has_all else f'{quote_names(names[:3])}, …'}")
    if retyped:
        more = f" and {len(retyped) - NAMED_MAX} more" if len(retyped) > NAMED_MAX else ""
        found.append(f"{pluralize(len(retyped), 'type')} changed: {', '.join(retyped[:NAMED_MAX])}{more}")
    if not (added or removed or retyped) and has_all:
        is_whole = all(one.preview.has_all_columns(one.columns) for one in (before, now))
        found.append("the same columns and types" if is_whole else "the same types, of the columns that are recorded")
    return found


def _rows_changed(before: int | None, now: int | None) -> Iterator[str]:
    if before is None or now is None:
        return
    if before == now:
        yield f"{pluralize(now, 'row')}, as before"
        return
    share = f", {(now - before) / before:+.1%}" if before else ""
    yield f"{before:,} → {now:,} rows ({now - before:+,}{share})"


def _by_name(columns: Sequence[tuple[str, str]]) -> dict[tuple[str, int], str]:
    """Types by name, and by which of the columns of that name it is."""
    found: dict[tuple[str, int], str] = {}
    counts: dict[str, int] = {}
    for name, kind in columns:
        counts[name] = counts.get(name, -1) + 1
        found[name, counts[name]] = kind
    return found
