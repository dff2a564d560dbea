"""Reading single phrases of a question: words of the grammar, and names, values and numbers that the schema explains.

Every rule returns all ways in which it can read the tokens at a position, each with the position after it. A rule never
skips a token, so a reading that reaches the end has explained every word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from mulligan_nl2sql.planning.rules import periods, vocabulary
from mulligan_nl2sql.planning.rules.lexicon import Lexicon, Words, is_function_word, unit_words
from mulligan_nl2sql.planning.rules.periods import Period
from mulligan_nl2sql.planning.rules.phrases import (
    Amount,
    ColumnPhrase,
    Comparison,
    NounPhrase,
    Span,
    TablePhrase,
    ValuePhrase,
)
from mulligan_nl2sql.planning.rules.tokens import Token, number_word, tokenize
from mulligan_nl2sql.planning.rules.word_forms import is_plural, singular

T = TypeVar("T")
P = ParamSpec("P")
Reader = TypeVar("Reader", bound="Terminals")
# A phrase, and the position after it.
Readings = list[tuple[T, int]]

_READINGS_MAX = 400


class TooManyReadings(Exception):
    """A question that can be read in hundreds of ways."""


def rule(method: Callable[Concatenate[Reader, P], Iterator[tuple[T, int]]]) -> Callable[..., Readings[T]]:
    """Remember what a rule has read at a position."""

    @wraps(method)
    def remembered(self: Reader, *args: P.args, **kwargs: P.kwargs) -> Readings[T]:
        key = (method.__name__, args, tuple(kwargs.items()))
        if key not in self.readings:
            found: Readings[T] = []
            for reading in method(self, *args, **kwargs):
                if reading not in found:
                    found.append(reading)
                if len(found) > _READINGS_MAX:
                    raise TooManyReadings
            self.readings[key] = found
        return cast(Readings[T], self.readings[key])

    return remembered


class Terminals:
    """The phrases that are not made of other phrases."""

    def __init__(self, tokens: Sequence[Token], lexicon: Lexicon, today: date) -> None:
        self.tokens = tokens
        self.lexicon = lexicon
        self.today = today
        self.readings: dict[Any, Any] = {}
        # The position that some reading has reached.
        self.furthest = 0
        self._forms = [singular(token.lower) if token.kind == "word" else "" for token in tokens]

    def noun(self, at: int) -> Readings[NounPhrase]:
        """Rows of a table; nouns and conditions contain each other."""
        raise NotImplementedError

    # -- words of the grammar ----------------------------------------------------------------------------------------

    def lower(self, at: int) -> str:
        return self.tokens[at].lower if at < len(self.tokens) and self.tokens[at].kind in ("word", "mark") else ""

    def word(self, at: int, phrase: str) -> int | None:
        """The position after a phrase; None if it does not stand here."""
        words = phrase.split()
        if all(self.lower(at + offset) == word for offset, word in enumerate(words)):
            return self.reached(at + len(words))
        return None

    def one_of(self, at: int, phrases: Collection[str]) -> Iterator[tuple[str, int]]:
        first = self.lower(at)
        for phrase in phrases:
            if first and phrase.split()[0] == first and (end := self.word(at, phrase)) is not None:
                yield phrase, end

    def meaning(self, at: int, table: Mapping[str, T]) -> Iterator[tuple[T, int]]:
        for phrase, end in self.one_of(at, table):
            yield table[phrase], end

    def optional(self, at: int, phrases: Collection[str]) -> Iterator[int]:
        """The position itself, and those after each of the phrases."""
        yield at
        for _, end in self.one_of(at, phrases):
            yield end

    def reached(self, at: int) -> int:
        self.furthest = max(self.furthest, at)
        return at

    # -- names -------------------------------------------------------------------------------------------------------

    def _lookup(self, at: int, table: Mapping[Words, T]) -> Iterator[tuple[T, int]]:
        words: Words = ()
        for end in range(at + 1, min(at + self.lexicon.longest, len(self.tokens)) + 1):
            form = self._forms[end - 1]
            if not form:
                return
            words = (*words, form)
            if words in table:
                yield table[words], self.reached(end)

    @rule
    def table(self, at: int) -> Iterator[tuple[TablePhrase, int]]:
        for tables, end in self._lookup(at, self.lexicon.tables):
            yield TablePhrase((at, end), tuple(tables), is_plural(self.tokens[end - 1].lower)), end

    @rule
    def column(self, at: int) -> Iterator[tuple[ColumnPhrase, int]]:
        """A column, alone or after its table: `price`, `product price`."""
        for found, end in self._lookup(at, self.lexicon.columns):
            yield ColumnPhrase((at, end), tuple(found)), end
        for owner, middle in self.table(at):
            for found, end in self._lookup(middle, self.lexicon.columns):
                yield ColumnPhrase((at, end), tuple(found), owner), end

    @rule
    def flag(self, at: int) -> Iterator[tuple[ColumnPhrase, int]]:
        for found, end in self._lookup(at, self.lexicon.flags):
            yield ColumnPhrase((at, end), tuple(found)), end

    @rule
    def event(self, at: int) -> Iterator[tuple[ColumnPhrase, int]]:
        for found, end in self._lookup(at, self.lexicon.events):
            yield ColumnPhrase((at, end), tuple(found)), end

    @rule
    def value(self, at: int) -> Iterator[tuple[ValuePhrase, int]]:
        if at < len(self.tokens) and self.tokens[at].kind == "quoted":
            text = self.tokens[at].lower
            words = tuple(token.lower for token in tokenize(text))
            yield ValuePhrase((at, at + 1), tuple(self.lexicon.values.get(words, ())), text), self.reached(at + 1)
            return
        words = ()
        for end in range(at + 1, min(at + self.lexicon.longest, len(self.tokens)) + 1):
            token = self.tokens[end - 1]
            if token.kind == "quoted":
                return
            words = (*words, token.lower)
            meanings = self.lexicon.values.get(words) or self._values_in_plural(words)
            if meanings and self._is_written_as_value((at, end), [text for one in meanings for text in one.values]):
                is_time = periods.names_time(self.tokens, at, end, self.today)
                yield ValuePhrase((at, end), tuple(meanings), is_time=is_time), self.reached(end)

    def _values_in_plural(self, words: Words) -> list[Any]:
        """`Laptop` means the value `Laptops`, if there is no other that it could mean."""
        if len(words) != 1 or len(words[0]) < len("four"):
            return []
        found = [
            meaning
            for known, meanings in self.lexicon.values.items()
            if len(known) == 1 and known != words and singular(known[0]) == singular(words[0])
            for meaning in meanings
        ]
        return found

    def _is_written_as_value(self, span: Span, texts: list[str]) -> bool:
        """A value such as `IN` or `no` is one only if it is written in the same way."""
        first, end = span
        if end - first > 1 or not is_function_word(self.tokens[first].lower):
            return True
        return self.tokens[first].text in texts and not self.tokens[first].text.islower()

    # -- numbers and times -------------------------------------------------------------------------------------------

    def number(self, at: int) -> str | None:
        found = number_word(self.tokens[at]) if at < len(self.tokens) else None
        if found is not None:
            self.reached(at + 1)
        return found

    @rule
    def amount(self, at: int) -> Iterator[tuple[Amount, int]]:
        """A number, maybe with a unit that the comment of a column has."""
        if (number := self.number(at)) is not None:
            yield Amount(number, (at, at + 1)), at + 1
            for units, end in self._lookup(at + 1, self.lexicon.units):
                yield Amount(number, (at, at + 1), tuple(units), (at + 1, end)), end
            for signs in self._sign(at + 1):
                yield Amount(number, (at, at + 1), signs, (at + 1, at + 2)), self.reached(at + 2)
        elif (number := self.number(at + 1)) is not None:
            for signs in self._sign(at):
                yield Amount(number, (at + 1, at + 2), signs, (at, at + 1)), at + 2

    def _sign(self, at: int) -> Iterator[tuple[Any, ...]]:
        if at < len(self.tokens) and self.tokens[at].kind == "mark":
            found = [one for words in unit_words(self.tokens[at]) for one in self.lexicon.units.get(words, ())]
            if found:
                yield tuple(found)

    @rule
    def comparison(self, at: int) -> Iterator[tuple[Comparison, int]]:
        """`over 20`, `between 5 and 10`, `3 or more`."""
        for negations, first in ((0, at), (1, self.word(at, "not"))):
            if first is None:
                continue
            for operator, middle in self.meaning(first, vocabulary.COMPARISONS):
                for amount, end in self.amount(middle):
                    shown = vocabulary.NEGATED[operator] if negations else operator
                    yield Comparison(shown, (amount,)), end
        if (start := self.word(at, "between")) is not None:
            for low, middle_end in self.amount(start):
                if (second := self.word(middle_end, "and")) is not None:
                    for high, end in self.amount(second):
                        if float(low.number) <= float(high.number):
                            yield Comparison("between", (low, high)), end
        for amount, middle in self.amount(at):
            for operator, end in self.meaning(middle, vocabulary.COMPARISONS_AFTER):
                yield Comparison(operator, (amount,)), end

    @rule
    def period(self, at: int) -> Iterator[tuple[Period, int]]:
        for found, end in periods.read_condition(self.tokens, at, self.today):
            yield found, self.reached(end)
