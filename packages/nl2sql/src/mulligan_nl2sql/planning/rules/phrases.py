"""What a question says, before it is known which tables and columns it means."""

from __future__ import annotations

import msgspec

from mulligan_nl2sql.planning.rules.lexicon import ColumnMeaning, ValueMeaning
from mulligan_nl2sql.planning.rules.periods import Period
from mulligan_nl2sql.schema import Table

# The first token, and the one after the last.
Span = tuple[int, int]


class TablePhrase(msgspec.Struct, frozen=True):
    span: Span
    tables: tuple[Table, ...]
    is_plural: bool = False


class ColumnPhrase(msgspec.Struct, frozen=True):
    """`owner` is the table in `product price`. `role` is set instead of candidates if a verb or adjective names it."""

    span: Span
    candidates: tuple[ColumnMeaning, ...] = ()
    owner: TablePhrase | None = None
    role: str = ""


class ValuePhrase(msgspec.Struct, frozen=True):
    """A value of the database; `text` if it stands in quotes and may be unknown."""

    span: Span
    meanings: tuple[ValueMeaning, ...] = ()
    text: str | None = None
    # The same words also name a time: `May`, `1984`.
    is_time: bool = False


class Amount(msgspec.Struct, frozen=True):
    number: str
    span: Span
    # The columns whose unit stands after the number; None if no unit does.
    units: tuple[ColumnMeaning, ...] | None = None
    unit_span: Span = (0, 0)


class Comparison(msgspec.Struct, frozen=True):
    operator: str
    # Two, if the operator is `between`.
    amounts: tuple[Amount, ...]


# -- conditions ------------------------------------------------------------------------------------------------------


class HasValue(msgspec.Struct, frozen=True):
    """`is_loose`: the value follows its noun without a preposition or the name of a column."""

    values: tuple[ValuePhrase, ...]
    column: ColumnPhrase | None = None
    is_negated: bool = False
    preposition: str = ""
    # A word that only the comment of the column, or its kind, explains.
    verb: str = ""
    is_loose: bool = False
    is_before_noun: bool = False


class Compares(msgspec.Struct, frozen=True):
    comparison: Comparison
    column: ColumnPhrase | None = None


class Happened(msgspec.Struct, frozen=True):
    """A time; `column` if a word says which one."""

    period: Period
    span: Span
    column: ColumnPhrase | None = None
    verb: str = ""
    is_negated: bool = False


class IsFlag(msgspec.Struct, frozen=True):
    flag: ColumnPhrase
    is_negated: bool = False
    is_before_noun: bool = False


class HasColumn(msgspec.Struct, frozen=True):
    """Whether a column has a value. `has_article`: `without a weight`, which is not `without weight`."""

    column: ColumnPhrase
    is_negated: bool = False
    has_article: bool = False


class HasKey(msgspec.Struct, frozen=True):
    number: str
    span: Span


class HasRelated(msgspec.Struct, frozen=True):
    """Rows of another table: some, none, or a number of them."""

    noun: NounPhrase
    is_negated: bool = False
    count: Comparison | None = None
    preposition: str = ""


class Participle(msgspec.Struct, frozen=True):
    """`shipped` without a time: it may mean a date that is set, or a value."""

    column: ColumnPhrase


Condition = HasValue | Compares | Happened | IsFlag | HasColumn | HasKey | HasRelated | Participle


class Top(msgspec.Struct, frozen=True):
    """The rows with the largest or the smallest value; all rows that share it, unless there is a number."""

    is_largest: bool
    column: ColumnPhrase | None = None
    related: NounPhrase | None = None
    measure: Measure | None = None
    number: int | None = None
    # It stands before its noun.
    is_adjective: bool = False


class NounPhrase(msgspec.Struct, frozen=True):
    """Rows of a table. Without a table, those that the column of a measure belongs to."""

    table: TablePhrase | None
    conditions: tuple[Condition, ...] = ()
    top: Top | None = None
    limit: int | None = None
    has_article: bool = False
    # `all orders`, `every order`
    is_every: bool = False


class Measure(msgspec.Struct, frozen=True):
    """`count` without a column counts rows. `is_of_dates`: the word for it means times alone, as `latest` does."""

    function: str
    column: ColumnPhrase | None = None
    is_of_dates: bool = False


class Group(msgspec.Struct, frozen=True):
    """One of: columns, tables, or a part of a date."""

    span: Span
    column: ColumnPhrase | None = None
    table: TablePhrase | None = None
    date_format: str = ""
    is_each: bool = False


class Sorting(msgspec.Struct, frozen=True):
    column: ColumnPhrase
    is_descending: bool


class Question(msgspec.Struct, frozen=True):
    noun: NounPhrase
    measures: tuple[Measure, ...] = ()
    columns: tuple[ColumnPhrase, ...] = ()
    groups: tuple[Group, ...] = ()
    sorting: Sorting | None = None
    is_distinct: bool = False
    # "which city has the most customers": the noun is what is counted.
    top: Top | None = None
