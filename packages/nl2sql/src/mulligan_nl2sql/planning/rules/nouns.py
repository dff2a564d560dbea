"""Reading nouns: rows of a table, with what stands before and after its name."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.planning.rules.conditions import Conditions, Found
from mulligan_nl2sql.planning.rules.periods import YEARS
from mulligan_nl2sql.planning.rules.phrases import (
    ColumnPhrase,
    Condition,
    HasKey,
    HasValue,
    IsFlag,
    NounPhrase,
    TablePhrase,
    Top,
)
from mulligan_nl2sql.planning.rules.terminals import rule

_LIMIT_MAX = 10_000


class Nouns(Conditions):
    """Rules for nouns."""

    @rule
    def noun(self, at: int) -> Iterator[tuple[NounPhrase, int]]:
        """Rows of a table, without an order or a number."""
        for noun, end in self.rows(at):
            if noun.top is None and noun.limit is None:
                yield noun, end

    @rule
    def rows(self, at: int) -> Iterator[tuple[NounPhrase, int]]:
        """`the customers in Berlin`, `the 5 cheapest products`, `the customer with the most orders`."""
        for start in self.optional(at, vocabulary.ARTICLES):
            is_every = self.lower(at) in ("all", "every") and start != at
            for noun, end in self._with_adjectives(start):
                yield replace(noun, has_article=start != at, is_every=is_every), end
            for top, middle in self._superlative(start):
                for noun, end in self._with_adjectives(middle):
                    if noun.top is None and (top.number is not None or not _is_plural(noun)):
                        yield replace(noun, top=top), end
            yield from self._ranked(start)
        yield from self._numbered(at)
        if (start_of_number := self.word(at, "the")) is not None:
            for noun, end in self._numbered(start_of_number):
                if noun.top is not None:
                    yield noun, end

    def _numbered(self, at: int) -> Iterator[tuple[NounPhrase, int]]:
        """`5 products`, `5 products with the highest price`."""
        number = self._whole_number(at)
        # "2024 orders" are those of a year.
        if number is None or number in YEARS:
            return
        for noun, end in self._with_adjectives(at + 1):
            if noun.top is None:
                yield replace(noun, limit=number), end
            elif noun.top.number is None:
                yield replace(noun, top=replace(noun.top, number=number)), end

    def _with_adjectives(self, at: int) -> Iterator[tuple[NounPhrase, int]]:
        for adjectives, middle in self._adjectives(at):
            for table, after in self.table(middle):
                yield from self._after_table(table, adjectives, after)

    def _after_table(
        self, table: TablePhrase, adjectives: tuple[Condition, ...], at: int
    ) -> Iterator[tuple[NounPhrase, int]]:
        for direct, middle in self._directly_after(at):
            for start in self.optional(middle, vocabulary.THERE):
                for found, end in self.conditions(start):
                    tops = [one for one in found if isinstance(one, Top)]
                    conditions = tuple(one for one in (*adjectives, *direct, *found) if not isinstance(one, Top))
                    if len(tops) <= 1:
                        yield NounPhrase(table, conditions, tops[0] if tops else None), end

    @rule
    def _adjectives(self, at: int) -> Iterator[tuple[tuple[Condition, ...], int]]:
        """Values and flags before a noun: `pending orders`, `discontinued products`, `Berlin customers`."""
        yield (), at
        first: list[tuple[Condition, int]] = [
            *((HasValue(values, is_loose=True, is_before_noun=True), end) for values, end in self.values(at)),
            *((IsFlag(flag, is_before_noun=True), end) for flag, end in self.flag(at)),
        ]
        for condition, middle in first:
            for rest, end in self._adjectives(middle):
                yield (condition, *rest), end

    def _directly_after(self, at: int) -> Iterator[tuple[tuple[Condition, ...], int]]:
        """`order 17`, `category Books`, `orders pending`."""
        yield (), at
        number = self.number(at)
        if number is not None and number.isdigit() and self.tokens[at].kind == "number":
            yield (HasKey(number, (at, at + 1)),), at + 1
        for condition, end in self.state(at):
            yield (condition,), end

    def _superlative(self, at: int) -> Iterator[tuple[Top, int]]:
        """`most expensive`, `5 cheapest`, `top 3 newest`."""
        starts: list[tuple[int, int | None]] = [(at, None)]
        for start in self.optional(at, ("top",)):
            if (count := self._whole_number(start)) is not None:
                starts.append((start + 1, count))
        for start, number in starts:
            for word, middle in self.one_of(start, vocabulary.SUPERLATIVES):
                is_largest, role = vocabulary.SUPERLATIVES[word]
                column = ColumnPhrase((start, middle), role=role)
                if word not in vocabulary.UNCLEAR_WITH_NUMBER or number is None:
                    yield Top(is_largest, column, number=number, is_adjective=True), middle
                after = self._whole_number(middle)
                if number is None and after is not None and word in ("last", "latest", "newest"):
                    yield Top(is_largest, column, number=after, is_adjective=True), middle + 1

    def _ranked(self, at: int) -> Iterator[tuple[NounPhrase, int]]:
        """`top 5 products by price`, `top 3 customers by number of orders`."""
        for is_largest, number, start in self.ranks(at):
            for noun, middle in self._with_adjectives(start):
                if noun.top is None and (by := self.word(middle, "by")) is not None:
                    for column, after in self.column(by):
                        top = Top(is_largest, column, number=number)
                        yield from self._with_late_conditions(replace(noun, top=top), after)
                    for _, counted in self.one_of(by, vocabulary.COUNTS):
                        for related, end in self.noun(counted):
                            yield replace(noun, top=Top(is_largest, related=related, number=number)), end

    def ranks(self, at: int) -> Iterator[tuple[bool, int, int]]:
        for word, is_largest in (("top", True), ("bottom", False)):
            start = self.word(at, word)
            number = self._whole_number(start) if start is not None else None
            if start is not None and number is not None:
                yield is_largest, number, start + 1

    def _whole_number(self, at: int) -> int | None:
        number = self.number(at)
        return int(number) if number is not None and number.isdigit() and 0 < int(number) <= _LIMIT_MAX else None

    def _with_late_conditions(self, noun: NounPhrase, at: int) -> Iterator[tuple[NounPhrase, int]]:
        for found, end in self.conditions(at):
            if not any(isinstance(one, Top) for one in found):
                yield replace(noun, conditions=(*noun.conditions, *_only_conditions(found))), end


def _only_conditions(found: tuple[Found, ...]) -> tuple[Condition, ...]:
    return tuple(one for one in found if not isinstance(one, Top))


def _is_plural(noun: NounPhrase) -> bool:
    return noun.table is not None and noun.table.is_plural
