"""Reading conditions: what a question says about the rows that it wants."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.planning.rules.phrases import (
    Amount,
    ColumnPhrase,
    Compares,
    Comparison,
    Condition,
    Happened,
    HasColumn,
    HasRelated,
    HasValue,
    IsFlag,
    Measure,
    Participle,
    Top,
    ValuePhrase,
)
from mulligan_nl2sql.planning.rules.terminals import Readings, Terminals, rule
from mulligan_nl2sql.planning.rules.word_forms import is_participle

Found = Condition | Top

_AN = ("a", "an", "any", "the")
_AND = ("and", ",", ", and", "but", "and also")
_OR = ("or", "and", ",", ", or", ", and")


class Conditions(Terminals):
    """Rules for conditions."""

    @rule
    def conditions(self, at: int) -> Iterator[tuple[tuple[Found, ...], int]]:
        """None, one or several conditions; all of them hold."""
        yield (), at
        for first, middle in self.condition(at):
            yield from self._with_more(first, middle)

    def _with_more(self, first: Found, middle: int) -> Iterator[tuple[tuple[Found, ...], int]]:
        for start in self.optional(middle, _AND):
            for rest, end in self.conditions(start):
                if rest or start == middle:
                    yield (first, *rest), end
        if _takes_further_objects(first):
            for _, start in self.one_of(middle, ("and", ",", ", and")):
                for second, after in self.further_object(start):
                    for rest, end in self._with_more(second, after):
                        yield (first, *rest), end

    @rule
    def condition(self, at: int) -> Iterator[tuple[Found, int]]:
        yield from self._in_clause(at)
        yield from self._with_preposition(at)
        yield from self._verb(at)
        yield from self._time(at)
        yield from self._plain_comparison(at)
        if (start := self.word(at, "without")) is not None:
            yield from self._lacks(start)
        if (start := self.word(at, "not")) is not None:
            yield from _negated(self._preposition_and_value(start))
            yield from _negated(self.state(start))

    def _in_clause(self, at: int) -> Iterator[tuple[Found, int]]:
        """`that …`, `whose price is …`, `where price > 20`."""
        for _, start in self.one_of(at, vocabulary.RELATIVES):
            yield from self._verb(start)
        for _, start in self.one_of(at, ("whose", "where", "where the", "whose the")):
            yield from self._column_test(start, takes_copula=True)

    # -- prepositions ------------------------------------------------------------------------------------------------

    def _with_preposition(self, at: int) -> Iterator[tuple[Found, int]]:
        yield from self._preposition_and_value(at)
        for preposition, start in self.one_of(at, vocabulary.RELATIONS):
            for noun, end in self.noun(start):
                yield HasRelated(noun, preposition=preposition), end
        for _, start in self.one_of(at, ("with", "having")):
            yield from self._objects(start, has_verb=False)

    def _preposition_and_value(self, at: int) -> Iterator[tuple[Condition, int]]:
        for preposition, start in self.one_of(at, vocabulary.PREPOSITIONS):
            for first in self.optional(start, ("the",)):
                for values, end in self._values(first):
                    yield HasValue(values, preposition=preposition), end
                for column, middle in self.column(first):
                    for start_of_value in self.optional(middle, ("of",)):
                        for values, end in self._values(start_of_value):
                            yield HasValue(values, column, preposition=preposition), end

    def _objects(self, at: int, *, has_verb: bool) -> Iterator[tuple[Found, int]]:
        """What follows `with` or `have`."""
        yield from self._none(at)
        yield from self._superlative_object(at)
        for start in self.optional(at, _AN):
            yield from self._column_test(start, takes_copula=False)
        yield from self._number_of(at)
        yield from self._plain_comparison(at)
        for amount, end in self.amount(at):
            if amount.units is not None:
                yield Compares(Comparison(vocabulary.EQ, (amount,))), end
        if has_verb:
            for noun, end in self.noun(at):
                yield HasRelated(noun), end
            for _, start in self.one_of(at, ("a", "an", "any")):
                for column, end in self.column(start):
                    yield HasColumn(column, has_article=True), end

    @rule
    def further_object(self, at: int) -> Iterator[tuple[Found, int]]:
        """`… and stock under 5`, after an object of `with` or `have`."""
        yield from self._none(at)
        for start in self.optional(at, _AN):
            yield from self._column_test(start, takes_copula=False)
        for comparison, middle in self.comparison(at):
            for noun, end in self.noun(middle):
                yield HasRelated(noun, count=comparison), end

    def _none(self, at: int) -> Iterator[tuple[Found, int]]:
        for _, start in self.one_of(at, vocabulary.NONE_OF):
            yield from self._lacks(start)

    def _lacks(self, at: int) -> Iterator[tuple[Found, int]]:
        for start in self.optional(at, _AN):
            for noun, end in self.noun(start):
                yield HasRelated(noun, is_negated=True, preposition="without"), end
            for column, end in self.column(start):
                yield HasColumn(column, is_negated=True, has_article=start != at), end

    def _number_of(self, at: int) -> Iterator[tuple[Found, int]]:
        for comparison, middle in self._count(at):
            for noun, end in self.noun(middle):
                yield HasRelated(noun, count=comparison), end

    def _count(self, at: int) -> Iterator[tuple[Comparison, int]]:
        yield from self.comparison(at)
        if (number := self.number(at)) is not None and number != "0":
            yield Comparison(vocabulary.EQ, (Amount(number, (at, at + 1)),)), at + 1

    def _superlative_object(self, at: int) -> Iterator[tuple[Found, int]]:
        """`the highest price`, `the most orders`, `the highest average price`."""
        if (start := self.word(at, "the")) is None:
            return
        for is_largest, middle in self.extreme(start):
            for column, end in self.column(middle):
                yield Top(is_largest, column), end
        for is_largest, middle in self.meaning(start, vocabulary.MOST):
            for noun, end in self.noun(middle):
                yield Top(is_largest, related=noun), end

    def extreme(self, at: int) -> Iterator[tuple[bool, int]]:
        for _, end in self.one_of(at, vocabulary.MAXIMA):
            yield True, end
        for _, end in self.one_of(at, vocabulary.MINIMA):
            yield False, end
        for function, end in self.meaning(at, vocabulary.DATE_AGGREGATES):
            yield function == "max", end

    @rule
    def extreme_measure(self, at: int) -> Iterator[tuple[tuple[bool, Measure], int]]:
        """`highest average price`."""
        for is_largest, middle in self.extreme(at):
            for function, start in self.meaning(middle, vocabulary.AGGREGATES):
                if function in ("avg", "sum"):
                    for column, end in self.column(start):
                        yield (is_largest, Measure(function, column)), end

    # -- columns -----------------------------------------------------------------------------------------------------

    def _column_test(self, at: int, *, takes_copula: bool) -> Iterator[tuple[Condition, int]]:
        for column, middle in self.column(at):
            yield from self._test_of(column, middle)
            if takes_copula:
                for _, start in self.one_of(middle, vocabulary.COPULAS):
                    yield from self._test_of(column, start)

    def _test_of(self, column: ColumnPhrase, at: int) -> Iterator[tuple[Condition, int]]:
        """What is said of a column: `over 20`, `of 5`, `Berlin`, `not Berlin`, `after 2024`."""
        for start in self.optional(at, ("of",)):
            for comparison, end in self.comparison(start):
                yield Compares(comparison, column), end
            for amount, end in self.amount(start):
                yield Compares(Comparison(vocabulary.EQ, (amount,)), column), end
        for start in self.optional(at, ("of", "=", "equal to", "equals", "in")):
            for values, end in self._values(start):
                yield HasValue(values, column), end
        for _, start in self.one_of(at, ("not", "other than", "!=", "<>", "not equal to", "not in", "different from")):
            for values, end in self._values(start):
                yield HasValue(values, column, is_negated=True), end
        for period, end in self.period(at):
            yield Happened(period, (at, end), column), end

    @rule
    def _values(self, at: int) -> Iterator[tuple[tuple[ValuePhrase, ...], int]]:
        """`Berlin`, `Berlin or Munich`, `Berlin, Munich and Hamburg`."""
        for value, middle in self.value(at):
            yield (value,), middle
            for start in self.optional(middle, _OR):
                if start != middle:
                    for rest, end in self._values(start):
                        yield (value, *rest), end

    def values(self, at: int) -> Readings[tuple[ValuePhrase, ...]]:
        return self._values(at)

    # -- verbs -------------------------------------------------------------------------------------------------------

    def _verb(self, at: int) -> Iterator[tuple[Found, int]]:
        for _, start in self.one_of(at, vocabulary.COPULAS):
            yield from self._predicate(start)
            if (negated := self.word(start, "not")) is not None:
                yield from _negated(self._preposition_and_value(negated))
                yield from _negated(self.state(negated))
        for _, start in self.one_of(at, vocabulary.HAVE):
            yield from self._objects(start, has_verb=True)
        for _, start in self.one_of(at, vocabulary.DO_NOT):
            yield from _negated(self._action(start))
            if (have := self.word(start, "have")) is not None:
                yield from self._lacks(have)
        yield from self._action(at)

    def _predicate(self, at: int) -> Iterator[tuple[Found, int]]:
        """What follows `is` or `are`."""
        yield from self.state(at)
        yield from self._with_preposition(at)
        yield from self._action(at)
        yield from self._plain_comparison(at)
        if (start := self.word(at, "the")) is not None:
            for (is_largest, role), end in self.meaning(start, vocabulary.SUPERLATIVES):
                yield Top(is_largest, ColumnPhrase((start, end), role=role)), end

    @rule
    def state(self, at: int) -> Iterator[tuple[Condition, int]]:
        """`cancelled`, `discontinued`, `shipped`: a value, a flag, or a date that is set."""
        for values, end in self._values(at):
            yield HasValue(values, is_loose=True), end
        for flag, end in self.flag(at):
            yield IsFlag(flag), end
        for event, end in self.event(at):
            # "returned" says that it has happened; "due" does not.
            if is_participle(self.tokens[end - 1].lower):
                yield Participle(event), end

    def _action(self, at: int) -> Iterator[tuple[Condition, int]]:
        """`cost more than 20`, `live in Berlin`, `named "Ada"`, `shipped in 2024`."""
        for role, middle in self.meaning(at, vocabulary.MEASURING_VERBS):
            column = ColumnPhrase((at, middle), role=role)
            for comparison, end in self.comparison(middle):
                yield Compares(comparison, column), end
            for amount, end in self.amount(middle):
                yield Compares(Comparison(vocabulary.EQ, (amount,)), column), end
        for _, middle in self.one_of(at, vocabulary.NAMING):
            for values, end in self._values(middle):
                yield HasValue(values, ColumnPhrase((at, middle), role="name")), end
        for event, middle in self.event(at):
            for period, end in self.period(middle):
                yield Happened(period, (middle, end), event), end
        for verb, middle in self._verb_of_comment(at):
            for condition, end in self._preposition_and_value(middle):
                yield replace(condition, verb=verb), end
            for period, end in self.period(middle):
                yield Happened(period, (middle, end), verb=verb), end

    def _verb_of_comment(self, at: int) -> Iterator[tuple[str, int]]:
        """A word that may stand between a noun and a value. Whether it fits is known with the column."""
        word = self.lower(at)
        if (
            word in vocabulary.LIVING
            or word in vocabulary.RECORDING_VERBS
            or (word and self.tokens[at].kind == "word" and self.lexicon.is_comment_word(word))
        ):
            yield word, self.reached(at + 1)

    # -- others ------------------------------------------------------------------------------------------------------

    def _time(self, at: int) -> Iterator[tuple[Condition, int]]:
        for period, end in self.period(at):
            yield Happened(period, (at, end)), end
        if (start := self.word(at, "not")) is not None:
            for period, end in self.period(start):
                yield Happened(period, (start, end), is_negated=True), end

    def _plain_comparison(self, at: int) -> Iterator[tuple[Condition, int]]:
        """`over 20 euros`, `cheaper than 20`."""
        for comparison, end in self.comparison(at):
            if all(amount.units is not None for amount in comparison.amounts[-1:]):
                yield Compares(comparison), end
        for (operator, role), middle in self.meaning(at, vocabulary.COMPARATIVES):
            for amount, end in self.amount(middle):
                yield Compares(Comparison(operator, (amount,)), ColumnPhrase((at, middle), role=role)), end


def _negated(found: Iterator[tuple[Condition, int]] | Readings[Condition]) -> Iterator[tuple[Condition, int]]:
    """The opposite of a condition, if the rules know how to say it."""
    for condition, end in found:
        if isinstance(condition, (HasValue, IsFlag, Happened)) and not condition.is_negated:
            yield replace(condition, is_negated=True), end
        elif isinstance(condition, Compares) and condition.comparison.operator in vocabulary.NEGATED:
            operator = vocabulary.NEGATED[condition.comparison.operator]
            yield replace(condition, comparison=replace(condition.comparison, operator=operator)), end


def _takes_further_objects(found: Found) -> bool:
    """`with a price over 20 …`, `with no orders …`, `with more than 3 orders …`: another object may follow."""
    match found:
        case HasRelated():
            return found.is_negated or found.count is not None
        case Compares() | HasValue():
            return found.column is not None
        case _:
            return isinstance(found, HasColumn)
