"""What the words of a schema may mean: its tables, columns, values and units."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.planning.rules.tokens import Token, tokenize
from mulligan_nl2sql.planning.rules.word_forms import is_participle, same_event, singular, stem, words_of
from mulligan_nl2sql.schema import Column, Schema, Table

Words = tuple[str, ...]

_CLAUSES = re.compile(r"[,;.:()/\n]| or | also ")
_CLAUSE_WORDS_MAX = 4
_UNIT = re.compile(r"\bin ([^\W\d_]+(?: [^\W\d_]+)?)$")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_NUMERIC = ("int", "real", "floa", "doub", "numeric", "dec", "money", "number", "hugeint")
_DATES = ("date", "timestamp")
_TEXTS = ("char", "text", "clob", "string", "enum", "varchar", "uuid")
_FLAG_PREFIXES = ("is", "has", "was")
_CURRENCY = {"€": {"euro", "eur"}, "$": {"dollar", "usd"}, "£": {"pound", "gbp"}, "%": {"percent", "percentage"}}
# Numbers of other columns are no quantities.
_FUNCTION_WORDS = frozenset(
    word
    for table in (
        vocabulary.PREPOSITIONS,
        vocabulary.ARTICLES,
        vocabulary.COPULAS,
        vocabulary.HAVE,
        vocabulary.MEANINGS,
    )
    for phrase in table
    for word in phrase.split()
) | frozenset("me us it he she we you they there top each per".split())


class Kind(IntEnum):
    NUMBER = 1
    DATE = 2
    TEXT = 3
    FLAG = 4
    OTHER = 5


class Match(IntEnum):
    """How well a phrase names a column: by its whole name, or by the last word of it."""

    HEAD = 1
    NAME = 2


class ColumnMeaning(NamedTuple):
    table: Table
    column: Column
    match: Match


class ValueMeaning(NamedTuple):
    table: Table
    column: Column
    # As the database stores them: more than one if they differ in case alone.
    values: tuple[str, ...]


def kind_of(column: Column) -> Kind:
    """What a column holds, by its declared type."""
    declared = column.type.lower()
    if "bool" in declared:
        return Kind.FLAG
    if declared.startswith(_DATES):
        # SQLite stores anything under any type: a date in another form would be compared wrongly.
        return Kind.DATE if all(_ISO_DATE.match(value) for value in column.values) else Kind.OTHER
    if declared.startswith(_NUMERIC) or "int" in declared.split("(")[0]:
        return Kind.OTHER if declared.startswith("interval") else Kind.NUMBER
    return Kind.TEXT if any(word in declared for word in _TEXTS) else Kind.OTHER


def is_key(table: Table, column: Column) -> bool:
    return column.name in table.primary_key or any(column.name in key.columns for key in table.foreign_keys)


class Lexicon:
    """The phrases of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.tables: dict[Words, list[Table]] = defaultdict(list)
        self.columns: dict[Words, list[ColumnMeaning]] = defaultdict(list)
        self.flags: dict[Words, list[ColumnMeaning]] = defaultdict(list)
        # Participles of dates: `shipped` of `shipped_on`.
        self.events: dict[Words, list[ColumnMeaning]] = defaultdict(list)
        self.values: dict[Words, list[ValueMeaning]] = defaultdict(list)
        self.units: dict[Words, list[ColumnMeaning]] = defaultdict(list)
        self._comment_words: dict[tuple[str, str], frozenset[str]] = {}
        for table in schema.tables:
            self._add_table(table)
        self._value_words = {form for words in self.values for word in words for form in (word, singular(word))}
        self.longest = max((len(words) for words in self._phrases()), default=1)

    def comment_explains(self, table: Table, column: Column, word: str) -> bool:
        """Whether the comment of a column has this word."""
        return singular(word) in self._comment_words.get((table.full_name, column.name), ())

    def is_comment_word(self, word: str) -> bool:
        """Whether the comment of some column has this word, or another form of it."""
        return any(singular(word) in words for words in self._comment_words.values())

    def knows(self, word: str) -> bool:
        """Whether a word occurs in any phrase of the schema."""
        return any(word in words for words in self._phrases()) or any(
            word in one for one in self._comment_words.values()
        )

    def is_value_word(self, word: str) -> bool:
        """Whether a word, or its plural, occurs in a value."""
        return word in self._value_words or singular(word) in self._value_words

    def event_column(self, table: Table) -> ColumnMeaning | None:
        """The column that says when a row of this table happened, if that is beyond doubt."""
        dates = [column for column in table.columns if kind_of(column) is Kind.DATE]
        nouns = words_of(table.name)
        own = [column for column in dates if self._is_own_event(column, nouns)]
        if not own and any(key.to_table != table.name for key in table.foreign_keys) and len(dates) == 1:
            own = [column for column in dates if vocabulary.RECORDING.issuperset(words_of(column.name))]
        return ColumnMeaning(table, own[0], Match.NAME) if len(own) == 1 else None

    @staticmethod
    def _is_own_event(column: Column, nouns: Words) -> bool:
        words = [word for word in words_of(column.name) if word not in vocabulary.DATE_SUFFIXES]
        if not words:
            # `date` alone.
            return True
        return len(words) == 1 and (
            words[0] == nouns[-1] or (is_participle(words[0]) and same_event(words[0], nouns[-1]))
        )

    # -- building ----------------------------------------------------------------------------------------------------

    def _phrases(self) -> Iterator[Words]:
        for table in (self.tables, self.columns, self.flags, self.events, self.values, self.units):
            yield from table

    def _add_table(self, table: Table) -> None:
        names = {words_of(table.name), *_clauses(table.comment)}
        for words in names:
            if words:
                self.tables[words].append(table)
        for column in table.columns:
            self._add_column(table, column)

    def _add_column(self, table: Table, column: Column) -> None:
        words, kind = words_of(column.name), kind_of(column)
        if not words:
            return
        self._comment_words[table.full_name, column.name] = frozenset(words_of(column.comment))
        if kind is Kind.FLAG:
            bare = words[1:] if words[0] in _FLAG_PREFIXES and len(words) > 1 else words
            self.flags[bare].append(ColumnMeaning(table, column, Match.NAME))
            return
        names = {words, *_clauses(column.comment)}
        if kind is Kind.DATE:
            names |= self._add_event(table, column, words)
        own = words_of(table.name)
        if len(words) > len(own) and words[: len(own)] == own:
            names.add(words[len(own) :])
        elif len(words) > 1 and own and words[0] == own[-1]:
            names.add(words[1:])
        for name in names:
            self.columns[name].append(ColumnMeaning(table, column, Match.NAME))
        head = words[-1:]
        if head not in names and kind is not Kind.DATE and not is_key(table, column):
            self.columns[head].append(ColumnMeaning(table, column, Match.HEAD))
        if kind is Kind.NUMBER and not is_key(table, column):
            self._add_units(table, column)
        if kind is Kind.TEXT:
            self._add_values(table, column)

    def _add_event(self, table: Table, column: Column, words: Words) -> set[Words]:
        """`shipped_on` is also called ship date and shipped date; "shipped in 2024" means it too."""
        bare = tuple(word for word in words if word not in vocabulary.DATE_SUFFIXES)
        if not bare:
            return set()
        self.events[bare].append(ColumnMeaning(table, column, Match.NAME))
        return {(*bare, "date"), (*(stem(word) for word in bare), "date")}

    def _add_units(self, table: Table, column: Column) -> None:
        for clause in _CLAUSES.split(column.comment):
            if found := _UNIT.search(clause.strip().lower()):
                self.units[words_of(found[1])].append(ColumnMeaning(table, column, Match.NAME))
        if len(words := words_of(column.comment)) == 1:
            # "stars": a synonym, and what is counted.
            self.units[words].append(ColumnMeaning(table, column, Match.NAME))

    def _add_values(self, table: Table, column: Column) -> None:
        by_words: dict[Words, list[str]] = defaultdict(list)
        for value in column.values:
            words = tuple(token.lower for token in tokenize(value))
            if words:
                by_words[words].append(value)
        for words, values in by_words.items():
            self.values[words].append(ValueMeaning(table, column, tuple(values)))


def unit_words(token: Token) -> Iterator[Words]:
    """The units that a sign after a number means."""
    for word in _CURRENCY.get(token.lower, ()):
        yield (word,)


def is_function_word(word: str) -> bool:
    return word in _FUNCTION_WORDS


def _clauses(comment: str) -> set[Words]:
    """The short clauses of a comment: other names of what it describes."""
    found = set()
    for clause in _CLAUSES.split(comment):
        words = words_of(clause)
        if words and words[0] in ("the", "a", "an"):
            words = words[1:]
        if 0 < len(words) <= _CLAUSE_WORDS_MAX and words[0] not in ("in", "where", "when", "if", "of", "for", "per"):
            found.add(words)
    return found
