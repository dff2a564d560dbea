"""The tables in an output: their recorded columns and first rows, and what has changed since the last run.

Everything is read from what the worker recorded when it stored the files. No file is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from mulligan.core.effects.snapshot import read_place
from mulligan.core.model.artifacts import KEY, holds_reference, is_artifact
from mulligan.core.model.text.artifact_words import describe_file
from mulligan.core.model.text.table_preview import Table, read_table, table_changes
from mulligan.errors import CodecError
from mulligan.history.evidence import aligned_rows
from mulligan.ports import Store

# How many tables of one output are shown, and in how many of the newest runs the one before is looked for.
TABLES_MAX, RUNS_SEEN_MAX = 5, 20


class OutputTable(msgspec.Struct, frozen=True):
    """A table of an output. `name` is where it is in the output; "" if it is the output."""

    name: str
    words: str
    table: Table
    # The last run before this one in which the step completed and returned this table; None if there is none.
    since: int | None = None
    changes: list[str] = []


def output_tables(store: Store, *, run_id: int, workflow: str, place: str, output: Any) -> list[OutputTable]:
    """The first tables of an output of a step or an item, compared with the newest run before that has them."""
    if not holds_reference(output):
        return []
    found = dict(islice(_tables(output), TABLES_MAX))
    if not found:
        return []
    before = _before(store, run_id, workflow, place)
    return [_compared(name, *one, before) for name, one in found.items()]


def _compared(name: str, words: str, table: Table, before: list[tuple[int, dict[str, Table]]]) -> OutputTable:
    for run_id, tables in before:
        if name in tables:
            return OutputTable(name, words, table, run_id, table_changes(tables[name], table))
    return OutputTable(name, words, table)


def _before(store: Store, run_id: int, workflow: str, place: str) -> list[tuple[int, dict[str, Table]]]:
    rows = store.recent_rows(workflow, "places", place, RUNS_SEEN_MAX)
    found = []
    for other, data in rows:
        if other >= run_id:
            continue
        try:
            earlier = read_place(place, data)
        except CodecError:
            continue  # `show` of that run reports it
        if earlier.status == "completed" and holds_reference(earlier.output):
            tables = islice(_tables(earlier.output), TABLES_MAX)
            found.append((other, {name: table for name, (_, table) in tables}))
    return found


def _tables(value: Any, name: str = "") -> Iterator[tuple[str, tuple[str, Table]]]:
    if is_artifact(value):
        if (table := read_table(value[KEY])) is not None:
            yield name, (describe_file(value), table)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _tables(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _tables(inner, f"{name}[{at}]")


def change_line(one: OutputTable) -> str:
    """`since run 3: 400 → 410 rows (+10, +2.5%); the same columns and types`; "" if no run came before."""
    name = f"{one.name}: " if one.name else ""
    return f"{name}since run {one.since}: {'; '.join(one.changes)}" if one.changes else ""


def table_lines(one: OutputTable) -> Iterator[str]:
    """A table for a terminal: its columns with their types, its first rows, and what has changed."""
    preview = one.table.preview
    kinds = [f"{name} {kind}" for name, kind in preview.columns]
    more = (one.table.columns or 0) + preview.index - len(kinds)
    left_out = f" and {more:,} more columns" if more > 0 else ""
    yield f"{one.name or 'table'}: {', '.join(kinds) or 'no columns'}{left_out}"
    yield from (f"  {line}" for line in aligned_rows([name for name, _ in preview.columns], preview.rows))
    if line := change_line(one):
        yield line
