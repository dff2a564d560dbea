"""Writing a query as SQL."""

from __future__ import annotations

import re

from msgspec.structs import replace
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from mulligan_nl2sql.planning.rules.joins import Path, Step
from mulligan_nl2sql.planning.rules.query import (
    Aggregate,
    DayTest,
    Equals,
    ExistsTest,
    Filter,
    FlagTest,
    GroupKey,
    NullTest,
    NumberTest,
    Place,
    Query,
    Ranking,
    RelatedTest,
    moved,
)
from mulligan_nl2sql.schema import Schema, Table

_SAFE = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(
    "TO USER CHECK CONSTRAINT COLUMN PRIMARY REFERENCES GRANT OFFSET ONLY BOTH LEADING TRAILING".split()
)
_OPERATORS: dict[str, type[exp.Binary]] = {
    ">": exp.GT,
    ">=": exp.GTE,
    "<": exp.LT,
    "<=": exp.LTE,
    "=": exp.EQ,
    "<>": exp.NEQ,
}
_FUNCTIONS: dict[str, type[exp.AggFunc]] = {"sum": exp.Sum, "avg": exp.Avg, "min": exp.Min, "max": exp.Max}


class _Names:
    """Names of tables in one statement: no two are the same."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        # Some of them are of several words, as `ORDER BY`.
        phrases = Dialect.get_or_raise(schema.dialect).tokenizer_class.KEYWORDS
        self._keywords = {word for phrase in phrases for word in phrase.split()} | _RESERVED
        self._taken: set[str] = set()

    def identifier(self, name: str) -> exp.Identifier:
        is_safe = _SAFE.fullmatch(name) is not None and name.upper() not in self._keywords
        return exp.to_identifier(name, quoted=not is_safe)

    def alias(self, table: Table) -> str:
        name, number = table.name, 2
        while name.lower() in self._taken:
            name, number = f"{table.name}_{number}", number + 1
        self._taken.add(name.lower())
        return name

    def table(self, table: Table, alias: str) -> exp.Table:
        """The table, with its schema if it would not be found without."""
        is_found = self._schema.find("", table.name) is table
        found = exp.Table(this=self.identifier(table.name), db=None if is_found else self.identifier(table.schema))
        if alias != table.name or not is_found:
            found.set("alias", exp.TableAlias(this=self.identifier(alias)))
        return found

    def column(self, alias: str, name: str) -> exp.Column:
        return exp.Column(this=self.identifier(name), table=self.identifier(alias))


class _Rows:
    """FROM, JOIN and WHERE for the rows of one table. Joins go up alone, so every row is there once."""

    def __init__(self, names: _Names, table: Table, alias: str) -> None:
        self._names = names
        self._aliases: dict[Path, str] = {(): alias}
        self._joins: list[tuple[Step, str, str]] = []
        self._required: set[Path] = set()
        self._conditions: list[exp.Expr] = []
        self.table = table
        self.source = names.table(table, alias)

    def column(self, place: Place, *, is_required: bool = False) -> exp.Column:
        """A column, and the joins that it needs. Required: a row without it is left out."""
        return self._names.column(self.alias(place.path, is_required=is_required), place.column.name)

    def alias(self, path: Path, *, is_required: bool) -> str:
        for length in range(1, len(path) + 1):
            part = path[:length]
            if part not in self._aliases:
                self._aliases[part] = self._names.alias(part[-1].target)
                self._joins.append((part[-1], self._aliases[part[:-1]], self._aliases[part]))
            if is_required:
                self._required.add(part)
        return self._aliases[path]

    def restrict(self, filters: tuple[Filter, ...]) -> None:
        for one in filters:
            self._conditions.extend(self._condition(one))

    def require(self, condition: exp.Expr) -> None:
        self._conditions.append(condition)

    def select(self, *shown: exp.Expr) -> exp.Select:
        statement = exp.select(*shown).from_(self.source)
        for step, source, alias in self._joins:
            path = next(path for path, name in self._aliases.items() if name == alias)
            is_outer = any(one.is_optional for one in path) and path not in self._required
            statement = statement.join(
                self._names.table(step.target, alias),
                on=exp.and_(*self._link(step, source, alias)),
                join_type="LEFT" if is_outer else "INNER",
            )
        return statement.where(*self._conditions) if self._conditions else statement

    def _link(self, step: Step, source: str, alias: str) -> list[exp.Expr]:
        return [
            exp.EQ(this=self._names.column(source, own), expression=self._names.column(alias, other))
            for own, other in step.columns
        ]

    # -- conditions --------------------------------------------------------------------------------------------------

    def _condition(self, one: Filter) -> list[exp.Expr]:
        match one:
            case RelatedTest():
                return [self._related(one)]
            case ExistsTest():
                self.alias(one.path, is_required=True)
                return []
            case Equals():
                return [self._equals(one)]
            case NumberTest():
                return [compare(self.column(one.place, is_required=True), one.operator, one.numbers)]
            case DayTest():
                return self._days(one)
            case FlagTest():
                column = self.column(one.place, is_required=True)
                return [exp.EQ(this=column, expression=exp.Boolean(this=one.is_set))]
            case NullTest():
                test = exp.Is(this=self.column(one.place, is_required=True), expression=exp.Null())
                return [test if one.is_null else exp.Not(this=test)]

    def _equals(self, one: Equals) -> exp.Expr:
        column = self.column(one.place, is_required=True)
        values = [exp.Literal.string(value) for value in one.values]
        if len(values) == 1:
            return (exp.NEQ if one.is_negated else exp.EQ)(this=column, expression=values[0])
        test = exp.In(this=column, expressions=values)
        return exp.Not(this=test) if one.is_negated else test

    def _days(self, one: DayTest) -> list[exp.Expr]:
        column = self.column(one.place, is_required=True)
        bounds: list[exp.Expr] = []
        if one.start:
            bounds.append(exp.GTE(this=column, expression=exp.Literal.string(one.start)))
        if one.end:
            bounds.append(exp.LT(this=column.copy(), expression=exp.Literal.string(one.end)))
        return [exp.Not(this=exp.Paren(this=exp.and_(*bounds)))] if one.is_negated else bounds

    def _related(self, one: RelatedTest) -> exp.Expr:
        if one.operator:
            return compare(self.count(one), one.operator, one.numbers)
        test = exp.Exists(this=self._belonging(one, None))
        return exp.Not(this=test) if one.is_negated else test

    def count(self, related: RelatedTest) -> exp.Expr:
        """How many rows belong to a row."""
        return self.computed(related, Aggregate("count", ""))

    def computed(self, related: RelatedTest, aggregate: Aggregate) -> exp.Expr:
        """A number computed from the rows that belong to a row."""
        return exp.Subquery(this=self._belonging(related, aggregate))

    def _belonging(self, related: RelatedTest, aggregate: Aggregate | None) -> exp.Select:
        """A query for the rows that belong to a row of the outer one."""
        known = max(length for length in range(len(related.path)) if related.path[:length] in self._aliases)
        first, outer = related.path[known], self._aliases[related.path[:known]]
        alias = self._names.alias(first.target)
        inner = _Rows(self._names, first.target, alias)
        for condition in self._link(first, outer, alias):
            inner.require(condition)
        ahead = related.path[known + 1 :]
        inner.alias(ahead, is_required=True)
        inner.restrict(tuple(moved(one, ahead) for one in related.filters))
        if aggregate is None:
            return inner.select(exp.Literal.number(1))
        place = aggregate.place
        if place is not None:
            aggregate = replace(aggregate, place=replace(place, path=(*ahead, *place.path)))
        return inner.select(_value(aggregate, inner))


def statement(query: Query, schema: Schema) -> exp.Select:
    """The statement of a query."""
    if query.aggregates:
        return _numbers(query, schema)
    names = _Names(schema)
    rows = _rows(query, names)
    shown: list[exp.Expr] = [rows.column(place) for place in query.columns]
    order: list[exp.Expr] = []
    if query.each is not None:
        shown.extend(exp.alias_(rows.computed(query.each, one), one.name) for one in query.each_values)
    ranking = query.ranking
    if ranking is not None:
        value = _ranked_value(rows, ranking)
        if ranking.related is not None and len(query.columns) == len(query.table.columns):
            shown.append(exp.alias_(value.copy(), ranking.name))
        if ranking.number is None:
            rows.require(exp.EQ(this=value.copy(), expression=_extreme(query, ranking, names)))
        else:
            if ranking.place is not None and ranking.place.column.is_nullable:
                rows.require(exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null())))
            order.append(_ordered(value.copy(), is_descending=ranking.is_largest))
    if query.sorting is not None:
        place, is_descending = query.sorting
        order.append(_ordered(rows.column(place), is_descending=is_descending))
    limit = query.limit or (ranking.number if ranking is not None else None)
    if (order or limit or query.each is not None) and not query.is_distinct:
        # The same rows in the same order every time.
        sorted_by = {one.this.sql() for one in order}
        keys = [
            rows.column(Place((), query.table, one))
            for one in query.table.columns
            if one.name in query.table.primary_key
        ]
        order.extend(_ordered(key, is_descending=False) for key in keys if key.sql() not in sorted_by)
    found = rows.select(*shown)
    if query.is_distinct:
        found = found.distinct()
    if order:
        found = found.order_by(*order)
    return found.limit(limit) if limit else found


def _rows(query: Query, names: _Names) -> _Rows:
    rows = _Rows(names, query.table, names.alias(query.table))
    rows.restrict(query.filters)
    return rows


def _ranked_value(rows: _Rows, ranking: Ranking) -> exp.Expr:
    if ranking.related is not None:
        return rows.count(ranking.related)
    assert ranking.place is not None
    return rows.column(ranking.place)


def _extreme(query: Query, ranking: Ranking, names: _Names) -> exp.Expr:
    """The largest or smallest value of all rows that the filters leave."""
    function = exp.Max if ranking.is_largest else exp.Min
    rows = _rows(query, names)
    value = _ranked_value(rows, ranking)
    if ranking.related is None:
        return exp.Subquery(this=rows.select(function(this=value)))
    return _extreme_of(rows.select(exp.alias_(value, "value")), function)


def _extreme_of(values: exp.Select, function: type[exp.AggFunc]) -> exp.Expr:
    inner = exp.Subquery(this=values, alias=exp.TableAlias(this=exp.to_identifier("counted")))
    column = exp.Column(this=exp.to_identifier("value"), table=exp.to_identifier("counted"))
    return exp.Subquery(this=exp.select(function(this=column)).from_(inner))


def _numbers(query: Query, schema: Schema) -> exp.Select:
    names = _Names(schema)
    rows = _rows(query, names)
    shown, keys = _keys(query, rows)
    values = [_value(one, rows) for one in query.aggregates]
    ranking = query.ranking
    order: list[exp.Expr] = []
    if ranking is not None:
        _leave_out_nulls(query, rows, keys)
    found = rows.select(*shown, *(exp.alias_(v, a.name) for v, a in zip(values, query.aggregates, strict=True)))
    if keys:
        found = found.group_by(*(key.copy() for key in keys))
    if ranking is not None and ranking.number is None:
        found = found.having(exp.EQ(this=values[0].copy(), expression=_extreme_group(query, ranking, names)))
    elif ranking is not None:
        order.append(_ordered(values[0].copy(), is_descending=ranking.is_largest))
    if query.sorting is not None:
        place, is_descending = query.sorting
        order.append(_ordered(rows.column(place), is_descending=is_descending))
    if keys:
        done = {one.this.sql() for one in order}
        order.extend(_ordered(key.copy(), is_descending=False) for key in keys if key.sql() not in done)
    if order:
        found = found.order_by(*order)
    return found.limit(ranking.number) if ranking is not None and ranking.number is not None else found


def _extreme_group(query: Query, ranking: Ranking, names: _Names) -> exp.Expr:
    rows = _rows(query, names)
    _, keys = _keys(query, rows)
    _leave_out_nulls(query, rows, keys)
    values = rows.select(exp.alias_(_value(query.aggregates[0], rows), "value")).group_by(*keys)
    return _extreme_of(values, exp.Max if ranking.is_largest else exp.Min)


def _leave_out_nulls(query: Query, rows: _Rows, keys: list[exp.Expr]) -> None:
    """Rows that belong to no group are not the largest one."""
    for group, key in zip(query.groups, keys, strict=True):
        if group.place.column.is_nullable or any(step.is_optional for step in group.place.path):
            rows.require(exp.Not(this=exp.Is(this=key.copy(), expression=exp.Null())))


def _keys(query: Query, rows: _Rows) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """What is shown of the groups, and what they are grouped by."""
    shown: list[exp.Expr] = []
    keys: list[exp.Expr] = []
    for group in query.groups:
        key = _key(group, rows)
        keys.append(key)
        shown.append(exp.alias_(key.copy(), group.name) if group.name else key.copy())
    return shown, keys


def _key(group: GroupKey, rows: _Rows) -> exp.Expr:
    column = rows.column(group.place, is_required=group.is_required)
    if not group.date_format:
        return column
    return exp.TimeToStr(this=column, format=exp.Literal.string(group.date_format))


def _value(aggregate: Aggregate, rows: _Rows) -> exp.Expr:
    if aggregate.place is None:
        return exp.Count(this=exp.Star())
    column = rows.column(aggregate.place)
    if aggregate.function == "count_distinct":
        return exp.Count(this=exp.Distinct(expressions=[column]))
    return _FUNCTIONS[aggregate.function](this=column)


def compare(value: exp.Expr, operator: str, numbers: tuple[str, ...]) -> exp.Expr:
    literals = [exp.Literal.number(number) for number in numbers]
    if operator == "between":
        return exp.Between(this=value, low=literals[0], high=literals[1])
    return _OPERATORS[operator](this=value, expression=literals[0])


def _ordered(value: exp.Expr, *, is_descending: bool) -> exp.Ordered:
    # Where a database puts rows without a value differs; here they are always the smallest.
    return exp.Ordered(this=value, desc=is_descending, nulls_first=not is_descending)
