"""Which tables and columns the phrases of a question mean, seen from the table that it is about."""

from __future__ import annotations

from collections.abc import Iterable

from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.planning.rules.joins import AmbiguousPath, Joins, NoPath, Path, describe
from mulligan_nl2sql.planning.rules.lexicon import ColumnMeaning, Kind, Lexicon, Match, is_key, kind_of
from mulligan_nl2sql.planning.rules.phrases import ColumnPhrase, Span, TablePhrase
from mulligan_nl2sql.planning.rules.problems import Ambiguous, Problem, Unclear
from mulligan_nl2sql.planning.rules.query import Place
from mulligan_nl2sql.planning.rules.word_forms import words_of
from mulligan_nl2sql.schema import Column, Table

# Dates that say nothing about when a row came to be.
_LATER_DATES = frozenset(
    "birth born updated modified changed deleted removed discontinued expired expires expiry expiration due end ended "
    "closed cancelled left terminated last next until valid seen login".split()
)


class Columns:
    """Finds columns, and keeps a note of what explained each phrase."""

    def __init__(self, lexicon: Lexicon, joins: Joins) -> None:
        self.lexicon = lexicon
        self.joins = joins
        self.explained: dict[Span, str] = {}

    def explain(self, span: Span, meaning: str) -> None:
        if span[1] > span[0]:
            self.explained[span] = meaning

    def table(self, phrase: TablePhrase) -> Table:
        if len(phrase.tables) > 1:
            names = [table.full_name for table in phrase.tables]
            raise Ambiguous("this may mean several tables", phrase.span, names)
        self.explain(phrase.span, f"table {phrase.tables[0].name}")
        return phrase.tables[0]

    def root_of(self, phrase: ColumnPhrase) -> Table:
        """The table of a column that is named without a noun."""
        if phrase.owner is not None:
            return self.table(phrase.owner)
        tables = {one.table.full_name: one.table for one in phrase.candidates}
        if len(tables) > 1:
            # Another reading may know the noun.
            names = [f"{one.table.name}.{one.column.name}" for one in phrase.candidates]
            raise Unclear("this may mean several columns", phrase.span, names)
        if not tables:
            raise Problem("it is not said which table is meant", phrase.span)
        return next(iter(tables.values()))

    def find(self, phrase: ColumnPhrase, table: Table, *, is_own: bool = False) -> Place:
        """The column of this table, or of a row that its rows refer to."""
        if phrase.role:
            return self._by_role(phrase, table)
        place = self._of_owner(phrase, table) if phrase.owner is not None else self._of_table(phrase, table)
        if is_own and place.path:
            raise Problem(f"{place} is no column of {table.name}", phrase.span)
        self.explain(phrase.span, f"column {place}")
        return place

    def path_up(self, source: Table, target: Table, span: Span) -> Path:
        try:
            return self.joins.up(source, target)
        except NoPath:
            message = f"a row of {source.name} refers to no single row of {target.name}, so rows would count twice"
            raise Problem(message, span) from None
        except AmbiguousPath as error:
            raise _several_paths(source, target, span, error) from None

    def path(self, source: Table, target: Table, span: Span) -> Path:
        try:
            return self.joins.any(source, target)
        except NoPath:
            raise Problem(f"no foreign key relates {source.name} and {target.name}", span) from None
        except AmbiguousPath as error:
            raise _several_paths(source, target, span, error) from None

    def event(self, table: Table, span: Span, *, is_group: bool = False) -> Place:
        """When a row of this table happened."""
        found = self.lexicon.event_column(table)
        if found is not None:
            return self._dated(Place((), table, found.column), span)
        if not _dates(table):
            parents = [self.lexicon.event_column(parent) for parent in self.joins.parents(table)]
            known = [parent for parent in parents if parent is not None]
            if len(known) == 1:
                place = Place(self.path_up(table, known[0].table, span), known[0].table, known[0].column)
                return self._dated(place, span)
        names = [f"{table.name}.{column.name}" for column in _dates(table)]
        if not names:
            raise Problem(f"{table.name} has no date", span)
        hint = f" (write '{_event_words(_dates(table)[0])} in …')" if len(names) == 1 and not is_group else ""
        raise Unclear(f"it is not said which date of {table.name} is meant{hint}", span, names)

    def newest(self, table: Table, span: Span, *, is_age: bool) -> Place:
        """By which date the rows of a table are new or old."""
        found = self.lexicon.event_column(table)
        dates = _dates(table)
        if found is None and len(dates) == 1 and not is_age and _LATER_DATES.isdisjoint(words_of(dates[0].name)):
            found = ColumnMeaning(table, dates[0], Match.NAME)
        if found is None:
            names = [f"{table.name}.{column.name}" for column in dates]
            if not names:
                raise Problem(f"{table.name} has no date", span)
            raise Unclear(f"it is not said which date of {table.name} is meant", span, names)
        return self._dated(Place((), table, found.column), span)

    def happened(self, phrase: ColumnPhrase, table: Table) -> Place:
        """The date that a participle or a name means."""
        place = self.find(phrase, table)
        if kind_of(place.column) is not Kind.DATE:
            raise Problem(f"{place} is no date", phrase.span)
        return place

    def label(self, table: Table) -> Column | None:
        """The column that names a row, for people."""
        found = [one for one in table.columns if words_of(one.name)[-1:] in (("name",), ("title",))]
        exact = [one for one in found if words_of(one.name) in (("name",), ("title",), (*words_of(table.name), "name"))]
        usable = exact or found
        return usable[0] if len(usable) == 1 else None

    def _dated(self, place: Place, span: Span) -> Place:
        self.explain(span, f"column {place}")
        return place

    def _by_role(self, phrase: ColumnPhrase, table: Table) -> Place:
        """`expensive` means a price, `named` a name."""
        wanted = vocabulary.COLUMN_WORDS[phrase.role]
        kind = Kind.TEXT if phrase.role == "name" else Kind.NUMBER
        found = [
            ColumnMeaning(table, column, Match.NAME)
            for column in table.columns
            if wanted.intersection(words_of(column.name)[-1:]) and kind_of(column) is kind and not is_key(table, column)
        ]
        if not found:
            raise Problem(f"{table.name} has no column for a {phrase.role}", phrase.span)
        if len(found) > 1:
            raise _several(phrase, found)
        place = Place((), table, found[0].column)
        self.explain(phrase.span, f"column {place}")
        return place

    def _of_owner(self, phrase: ColumnPhrase, table: Table) -> Place:
        assert phrase.owner is not None
        owner = self.table(phrase.owner)
        own = [one for one in phrase.candidates if one.table is owner]
        best = [one for one in own if one.match is Match.NAME] or own
        if not best:
            raise Problem(f"{owner.name} has no such column", phrase.span)
        if len(best) > 1:
            raise _several(phrase, best)
        return Place(self.path_up(table, owner, phrase.span), owner, best[0].column)

    def _of_table(self, phrase: ColumnPhrase, table: Table) -> Place:
        near = self.joins.reachable(table)
        own = [one for one in phrase.candidates if one.table is table]
        named = [one for one in own if one.match is Match.NAME]
        related = [
            one for one in phrase.candidates if one.table is not table and one.table in near and one.match is Match.NAME
        ]
        if len(named) == 1:
            return Place((), table, named[0].column)
        if named or (own and (len(own) > 1 or related)):
            raise _several(phrase, [*own, *related])
        if own:
            return Place((), table, own[0].column)
        if len(related) > 1:
            raise _several(phrase, related)
        if not related:
            raise Problem(f"{table.name} has no such column", phrase.span)
        return Place(self.path_up(table, related[0].table, phrase.span), related[0].table, related[0].column)


def _event_words(column: Column) -> str:
    """`scheduled` for scheduled_on: what stands before a time that means this date."""
    return " ".join(word for word in words_of(column.name) if word not in vocabulary.DATE_SUFFIXES)


def _dates(table: Table) -> list[Column]:
    return [column for column in table.columns if kind_of(column) is Kind.DATE]


def _several(phrase: ColumnPhrase, found: Iterable[ColumnMeaning]) -> Ambiguous:
    names = [f"{one.table.name}.{one.column.name}" for one in found]
    return Ambiguous("this may mean several columns", phrase.span, names)


def _several_paths(source: Table, target: Table, span: Span, error: AmbiguousPath) -> Ambiguous:
    return Ambiguous(
        f"{source.name} and {target.name} are related in several ways", span, [describe(path) for path in error.paths]
    )
