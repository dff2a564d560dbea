"""What a question means: tables, columns and conditions, before it is written as SQL."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mulligan_nl2sql.planning.rules.joins import Path
from mulligan_nl2sql.schema import Column, Table


class Place(msgspec.Struct, frozen=True):
    """A column of the row that a path leads to. The path is empty for the row itself, and goes up otherwise."""

    path: Path
    table: Table
    column: Column

    def __str__(self) -> str:
        return f"{self.table.name}.{self.column.name}"


class Equals(msgspec.Struct, frozen=True):
    place: Place
    values: tuple[str, ...]
    is_negated: bool = False


class NumberTest(msgspec.Struct, frozen=True):
    place: Place
    # One of the comparisons, or `between`.
    operator: str
    numbers: tuple[str, ...]


class DayTest(msgspec.Struct, frozen=True):
    """From `start`, included, to `end`, not included, as ISO dates; empty for no bound."""

    place: Place
    start: str
    end: str
    is_negated: bool = False


class FlagTest(msgspec.Struct, frozen=True):
    place: Place
    is_set: bool


class NullTest(msgspec.Struct, frozen=True):
    place: Place
    is_null: bool


class RelatedTest(msgspec.Struct, frozen=True):
    """Rows at the end of a path for which the filters hold: some, none, or a number that is compared."""

    path: Path
    filters: tuple[Filter, ...]
    is_negated: bool = False
    operator: str = ""
    numbers: tuple[str, ...] = ()


class ExistsTest(msgspec.Struct, frozen=True):
    """There is a row at the end of a path that goes up."""

    path: Path


Filter = Equals | NumberTest | DayTest | FlagTest | NullTest | RelatedTest | ExistsTest


class Aggregate(msgspec.Struct, frozen=True):
    """`count` without a place counts rows."""

    function: str
    name: str
    place: Place | None = None


class GroupKey(msgspec.Struct, frozen=True):
    place: Place
    # How a date is shortened, as strftime writes it; empty: the column itself.
    date_format: str = ""
    name: str = ""
    # Rows that refer to no row of the group's table are left out, and are no group of their own.
    is_required: bool = False


class Ranking(msgspec.Struct, frozen=True):
    """The rows with the largest or smallest value; `number` None: all that share it.

    Without a place and without related rows, it is the first aggregate of the groups that is compared.
    """

    is_largest: bool
    number: int | None
    place: Place | None = None
    related: RelatedTest | None = None
    name: str = ""


class Query(msgspec.Struct, frozen=True):
    """Rows of one table, each of them once, or numbers computed from them."""

    table: Table
    filters: tuple[Filter, ...]
    columns: tuple[Place, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    groups: tuple[GroupKey, ...] = ()
    # For each row of the table, numbers computed from the rows that belong to it: also where there are none.
    each: RelatedTest | None = None
    each_values: tuple[Aggregate, ...] = ()
    sorting: tuple[Place, bool] | None = None
    ranking: Ranking | None = None
    limit: int | None = None
    is_distinct: bool = False


def returns_to(one: Filter, table: Table) -> bool:
    """Whether a filter leads back to a table."""
    return any(step.target is table for step in path_of(one))


def path_of(one: Filter) -> Path:
    """The path to what a filter tests."""
    return one.path if isinstance(one, (RelatedTest, ExistsTest)) else one.place.path


def shortened(one: Filter, steps: int) -> Filter:
    """A filter as seen from the row that its first steps lead to: the opposite of `moved`."""
    if isinstance(one, (RelatedTest, ExistsTest)):
        return replace(one, path=one.path[steps:])
    return replace(one, place=replace(one.place, path=one.place.path[steps:]))


def moved(one: Filter, path: Path) -> Filter:
    """A filter on the row at the end of a path, as a filter on the row at its beginning."""
    if isinstance(one, (RelatedTest, ExistsTest)):
        return replace(one, path=(*path, *one.path))
    return replace(one, place=replace(one.place, path=(*path, *one.place.path)))
