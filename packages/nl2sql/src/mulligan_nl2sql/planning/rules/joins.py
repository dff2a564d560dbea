"""How tables hang together: paths along foreign keys.

A path goes down (to the many rows that refer to a row) and then up (to the one row that a row refers to), never down
after up: orders and reviews of the same customer have nothing else in common.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from mulligan_nl2sql.planning.rules.word_forms import words_of
from mulligan_nl2sql.schema import ForeignKey, Schema, Table

_STEPS_MAX = 4


class Step(msgspec.Struct, frozen=True):
    """From one table to the next. `is_up`: at most one row is there."""

    source: Table
    target: Table
    columns: tuple[tuple[str, str], ...]
    is_up: bool
    # The row that is referred to may be missing.
    is_optional: bool
    # The key is named after the table that it refers to, and not after what that is in this relation.
    is_plain: bool


Path = tuple[Step, ...]


class NoPath(Exception):
    """Two tables are not related by foreign keys."""


class AmbiguousPath(Exception):
    """Two tables are related in several ways."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__("several paths")
        self.paths = paths


class Joins:
    """The foreign keys of a schema, in both directions."""

    def __init__(self, schema: Schema) -> None:
        self._steps: dict[str, list[Step]] = defaultdict(list)
        tables = {table.full_name: table for table in schema.tables}
        for table in schema.tables:
            for key in table.foreign_keys:
                target = tables.get(f"{key.to_schema}.{key.to_table}")
                if target is not None and target is not table:
                    self._add(table, key, target)

    def up(self, source: Table, target: Table) -> Path:
        """The unique shortest path on which every step leads to one row. NoPath, or AmbiguousPath."""
        if source is target:
            return ()
        return _unique([path for path in self._walk(source, target) if all(step.is_up for step in path)])

    def any(self, source: Table, target: Table) -> Path:
        """The path between two tables. If a step leads to many rows, it is direct, or there is no other path."""
        paths = self._all(source, target)
        ups = [path for path in paths if all(step.is_up for step in path)]
        if ups:
            return _unique(ups)
        direct: list[Path] = [path for path in paths if len(path) == 1]
        if direct:
            return _unique(direct)
        if len(paths) > 1:
            raise AmbiguousPath(paths)
        return _unique(paths)

    def parents(self, source: Table) -> Iterator[Table]:
        """The tables that rows of this one refer to directly."""
        for step in self._steps[source.full_name]:
            if step.is_up:
                yield step.target

    def reachable(self, source: Table) -> list[Table]:
        """The table and all tables that are up from it."""
        found = [source]
        for table in found:
            for step in self._steps[table.full_name]:
                if step.is_up and step.target not in found:
                    found.append(step.target)
        return found

    def _all(self, source: Table, target: Table) -> list[Path]:
        return [] if source is target else list(self._walk(source, target))

    def _walk(self, source: Table, target: Table, path: Path = ()) -> Iterator[Path]:
        if source is target:
            yield path
            return
        if len(path) == _STEPS_MAX:
            return
        visited = {step.source.full_name for step in path} | {source.full_name}
        for step in self._steps[source.full_name]:
            goes_down_after_up = bool(path) and path[-1].is_up and not step.is_up
            if step.target.full_name not in visited and not goes_down_after_up:
                yield from self._walk(step.target, target, (*path, step))

    def _add(self, table: Table, key: ForeignKey, target: Table) -> None:
        pairs = tuple(zip(key.columns, key.to_columns, strict=True))
        nullable = {column.name for column in table.columns if column.is_nullable}
        is_optional = bool(nullable.intersection(key.columns))
        is_plain = _is_plain(key, target)
        self._steps[table.full_name].append(Step(table, target, pairs, True, is_optional, is_plain))
        # A key that is also the primary key is referred to by one row at most.
        is_single = set(key.columns) == set(table.primary_key)
        back = tuple((other, own) for own, other in pairs)
        self._steps[target.full_name].append(Step(target, table, back, is_single, True, is_plain))


def describe(path: Path) -> str:
    """The keys of a path, in words."""
    return ", ".join(
        f"{step.source.name}.{own} = {step.target.name}.{other}" for step in path for own, other in step.columns
    )


def _unique(paths: list[Path]) -> Path:
    shortest = min((len(path) for path in paths), default=0)
    found = [path for path in paths if len(path) == shortest]
    if not found:
        raise NoPath
    if len(found) > 1:
        raise AmbiguousPath(found)
    return found[0]


def _is_plain(key: ForeignKey, target: Table) -> bool:
    words = [
        word for column in key.columns for word in words_of(column) if word not in ("id", "key", "code", "no", "fk")
    ]
    return set(words) <= set(words_of(target.name))
