"""From a question to a query: each row of one table at most once, so that nothing is counted twice."""

from __future__ import annotations

from msgspec.structs import replace

from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.planning.rules.binding import Filters, check_number, refuse_split_states
from mulligan_nl2sql.planning.rules.columns import Columns
from mulligan_nl2sql.planning.rules.joins import Joins, Step
from mulligan_nl2sql.planning.rules.lexicon import Kind, Lexicon, is_key, kind_of
from mulligan_nl2sql.planning.rules.phrases import (
    ColumnPhrase,
    Group,
    HasRelated,
    Measure,
    Question,
    Span,
    Top,
)
from mulligan_nl2sql.planning.rules.problems import Problem
from mulligan_nl2sql.planning.rules.query import (
    Aggregate,
    ExistsTest,
    Filter,
    GroupKey,
    Place,
    Query,
    Ranking,
    RelatedTest,
    path_of,
    returns_to,
    shortened,
)
from mulligan_nl2sql.planning.rules.tokens import Token
from mulligan_nl2sql.planning.rules.word_forms import words_of
from mulligan_nl2sql.schema import Column, Table

_NAMES = {"avg": "average", "sum": "total", "min": "minimum", "max": "maximum", "count_distinct": "distinct"}
_DATE_PART_NAMES = {date_format: name for name, date_format in vocabulary.DATE_PARTS.items()}


class Meaning:
    """The meaning of one reading. `columns.explained` says which words mean what."""

    def __init__(self, lexicon: Lexicon, joins: Joins, tokens: tuple[Token, ...]) -> None:
        self.columns = Columns(lexicon, joins)
        self._filters = Filters(self.columns, tokens)
        self._tokens = tokens

    def of(self, question: Question) -> Query:
        """The query, or a Problem."""
        refuse_split_states(question)
        noun = question.noun
        table = self._root(question)
        filters = self._filters.of_noun(noun, table)
        if question.measures:
            return self._numbers(question, Query(table, filters))
        return self._rows(question, Query(table, filters))

    def _root(self, question: Question) -> Table:
        if question.noun.table is not None:
            return self.columns.table(question.noun.table)
        phrase = question.measures[0].column if question.measures else question.columns[0]
        for condition in question.noun.conditions:
            if isinstance(condition, HasRelated) and condition.preposition in ("of", "for"):
                # "average amount of orders", where an order has several amounts.
                table = condition.noun.table
                span = table.span if table is not None else (0, 0)
                raise Problem("it has no such column of its own", span, is_general=True)
        if phrase is None:
            raise Problem("it is not said what is counted")
        return self.columns.root_of(phrase)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, question: Question, base: Query) -> Query:
        table, noun = base.table, question.noun
        columns = tuple(self._shown(phrase, table) for phrase in question.columns)
        if not columns:
            columns = tuple(Place((), table, column) for column in table.columns)
        ranking = self._ranking(noun.top, table) if noun.top is not None else None
        if ranking is not None and question.sorting is not None:
            raise Problem("rows are either ranked or sorted")
        if question.is_distinct and (ranking is not None or noun.limit is not None):
            raise Problem("different values cannot be ranked")
        return Query(
            table=table,
            filters=base.filters,
            columns=columns,
            sorting=self._sorting(question, table),
            ranking=ranking,
            limit=noun.limit,
            is_distinct=question.is_distinct,
        )

    def _shown(self, phrase: ColumnPhrase, table: Table) -> Place:
        first, end = phrase.span
        if end - first == 1 and self._tokens[first].lower in vocabulary.AGGREGATE_NAMES:
            raise Problem("this is the name of a column, and may also ask for a number", phrase.span)
        return self.columns.find(phrase, table)

    def _sorting(self, question: Question, table: Table) -> tuple[Place, bool] | None:
        if question.sorting is None:
            return None
        phrase = question.sorting.column
        place = self._by_date(phrase, table) if phrase.role == "date" else self.columns.find(phrase, table)
        if question.is_distinct and place not in [self.columns.find(one, table) for one in question.columns]:
            raise Problem("different values are sorted by themselves alone", phrase.span)
        return place, question.sorting.is_descending

    def _ranking(self, top: Top, table: Table) -> Ranking:
        if top.related is not None:
            assert top.related.table is not None
            counted = self._filters.counted(top.related, table, top.related.table.span)
            return Ranking(top.is_largest, top.number, related=counted, name=_count_name(counted.path[-1].target))
        assert top.column is not None
        if top.column.role == "date":
            return Ranking(top.is_largest, top.number, self._by_date(top.column, table))
        place = self.columns.find(top.column, table, is_own=True)
        if kind_of(place.column) not in (Kind.NUMBER, Kind.DATE) or is_key(table, place.column):
            raise Problem(f"{place} has no largest value", top.column.span)
        return Ranking(top.is_largest, top.number, place)

    def _by_date(self, phrase: ColumnPhrase, table: Table) -> Place:
        words = {self._tokens[at].lower for at in range(*phrase.span)}
        return self.columns.newest(table, phrase.span, is_age=bool(words & {"oldest", "youngest"}))

    # -- numbers -----------------------------------------------------------------------------------------------------

    def _numbers(self, question: Question, base: Query) -> Query:
        table = base.table
        if question.noun.top is not None or question.noun.limit is not None:
            raise Problem("a number of ranked rows is not something that the rules can ask for")
        aggregates = tuple(self._aggregate(measure, table) for measure in question.measures)
        each = question.groups[0].table if len(question.groups) == 1 and question.groups[0].is_each else None
        # There is a number and a total of no rows; there is no average of them.
        has_none = any(one.function in ("count", "sum") for one in aggregates)
        if each is not None and question.top is None and has_none:
            return self._each(question, base, self.columns.table(each), aggregates)
        groups = tuple(key for group in question.groups for key in self._group(group, table))
        if len({key.place for key in groups}) < len(groups):
            raise Problem("a group is named twice")
        ranking = Ranking(question.top.is_largest, question.top.number) if question.top is not None else None
        if ranking is not None and not ranking.is_largest and base.filters and aggregates[0].function == "count":
            raise Problem("a group that has no such rows has the fewest, and is not seen", question.groups[0].span)
        return Query(
            table=table,
            filters=base.filters,
            aggregates=aggregates,
            groups=groups,
            sorting=self._sorting_of_groups(question, table, groups),
            ranking=ranking,
        )

    def _aggregate(self, measure: Measure, table: Table) -> Aggregate:
        phrase, function = measure.column, measure.function
        if phrase is None:
            return Aggregate(function, _count_name(table))
        if measure.is_of_dates and not any(kind_of(one.column) is Kind.DATE for one in phrase.candidates):
            raise Problem("this is no date", phrase.span)
        place = self._by_date(phrase, table) if phrase.role == "date" else self.columns.find(phrase, table)
        kind = kind_of(place.column)
        if function in ("sum", "avg"):
            check_number(place, phrase.span)
            if place.path:
                raise Problem(f"{place} would be counted once for each row of {table.name}", phrase.span)
        elif function in ("min", "max") and (kind not in (Kind.NUMBER, Kind.DATE) or is_key(place.table, place.column)):
            raise Problem(f"{place} has no largest or smallest value", phrase.span)
        if measure.is_of_dates and kind is not Kind.DATE:
            raise Problem(f"{place} is no date", phrase.span)
        return Aggregate(function, f"{_NAMES[function]}_{'_'.join(words_of(place.column.name))}", place)

    def _group(self, group: Group, table: Table) -> list[GroupKey]:
        if group.date_format:
            place = self.columns.event(table, group.span, is_group=True)
            return [GroupKey(place, group.date_format, _DATE_PART_NAMES[group.date_format])]
        if group.column is not None:
            return [GroupKey(self.columns.find(group.column, table))]
        assert group.table is not None
        target = self.columns.table(group.table)
        if target is table:
            raise Problem(f"{table.name} cannot be grouped by itself", group.span)
        path = self.columns.path_up(table, target, group.span)
        columns = self._identity(target, group.span)
        return [GroupKey(Place(path, target, column), is_required=group.is_each) for column in columns]

    def _identity(self, table: Table, span: Span) -> list[Column]:
        """The key of a table, and the column that names its rows."""
        if not table.primary_key:
            raise Problem(f"{table.name} has no primary key", span)
        label = self.columns.label(table)
        return [one for one in table.columns if one.name in table.primary_key or one is label]

    def _each(self, question: Question, base: Query, target: Table, aggregates: tuple[Aggregate, ...]) -> Query:
        """`for each customer`: also for customers that have no rows."""
        span = question.groups[0].span
        if target is base.table:
            raise Problem(f"{target.name} cannot be grouped by itself", span)
        up = self.columns.path_up(base.table, target, span)
        down = self.columns.path(target, base.table, span)
        if [(one.source, one.columns) for one in down] != [(one.target, _swapped(one)) for one in reversed(up)]:
            raise Problem(f"{base.table.name} and {target.name} are related in several ways", span)
        own: list[Filter] = []
        related: list[Filter] = []
        for one in base.filters:
            path = path_of(one)
            if path[: len(up)] == up:
                own.append(shortened(one, len(up)))
            elif returns_to(one, target):
                raise Problem(f"it is not said how this belongs to {target.name}", span)
            else:
                related.append(one)
        columns = tuple(Place((), target, column) for column in self._identity(target, span))
        sorting = None
        if question.sorting is not None:
            place = self.columns.find(question.sorting.column, base.table)
            sorted_by = replace(place, path=place.path[len(up) :])
            if place.path != up or sorted_by not in columns:
                raise Problem("groups are sorted by what they are grouped by", question.sorting.column.span)
            sorting = (sorted_by, question.sorting.is_descending)
        return Query(
            table=target,
            filters=tuple(one for one in own if one != ExistsTest(())),
            columns=columns,
            each=RelatedTest(down, tuple(related)),
            each_values=aggregates,
            sorting=sorting,
        )

    def _sorting_of_groups(
        self, question: Question, table: Table, groups: tuple[GroupKey, ...]
    ) -> tuple[Place, bool] | None:
        if question.sorting is None:
            return None
        place = self.columns.find(question.sorting.column, table)
        if place not in [key.place for key in groups if not key.date_format]:
            raise Problem("groups are sorted by what they are grouped by", question.sorting.column.span)
        return place, question.sorting.is_descending


def _count_name(table: Table) -> str:
    return f"{'_'.join(words_of(table.name))}_count"


def _swapped(step: Step) -> tuple[tuple[str, str], ...]:
    return tuple((other, own) for own, other in step.columns)
