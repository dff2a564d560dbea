"""Reading whole questions."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.planning.rules.nouns import Nouns
from mulligan_nl2sql.planning.rules.phrases import (
    ColumnPhrase,
    Condition,
    Group,
    HasRelated,
    Measure,
    NounPhrase,
    Question,
    Sorting,
    Top,
)
from mulligan_nl2sql.planning.rules.terminals import rule

_AND = ("and", ",", ", and")
_NOWHERE = NounPhrase(None)


class Tail(msgspec.Struct, frozen=True):
    """What follows the noun: further conditions, groups, an order."""

    conditions: tuple[Condition, ...] = ()
    groups: tuple[Group, ...] = ()
    sorting: Sorting | None = None


class Questions(Nouns):
    """Rules for questions."""

    def read(self) -> list[Question]:
        """Every way to read all tokens as a question."""
        found = []
        for start in self.optional(0, ("please", "hi", "hello")):
            for question, end in self._whole(start):
                if end == len(self.tokens) and question not in found:
                    found.append(question)
        return found

    def _whole(self, at: int) -> Iterator[tuple[Question, int]]:
        for question, middle in self._body(at):
            yield question, middle
            for _, end in self.one_of(middle, vocabulary.TRAILERS):
                yield question, end
        for groups, start in self._leading_groups(at):
            for question, end in self._body(start):
                if question.measures and not question.groups and question.top is None:
                    yield replace(question, groups=groups), end

    def _leading_groups(self, at: int) -> Iterator[tuple[tuple[Group, ...], int]]:
        for groups, middle in self._groups(at):
            for start in self.optional(middle, (",",)):
                yield groups, start

    def _body(self, at: int) -> Iterator[tuple[Question, int]]:
        for start in self.optional(at, ("tell me", "show me")):
            yield from self._how_many(start)
        yield from self._when(at)
        for _, start in self.one_of(at, vocabulary.WHICH):
            yield from self._listed(start, is_which=True)
            yield from self._group_extremes(start)
        for start in self.optional(at, vocabulary.LEADS):
            yield from self._counted(start)
            yield from self._measured(start)
            yield from self._listed(start, is_which=False)
            yield from self._distinct(start)
            yield from self._group_extremes(start)
            yield from self._group_ranks(start)

    # -- numbers -----------------------------------------------------------------------------------------------------

    def _how_many(self, at: int) -> Iterator[tuple[Question, int]]:
        if (start := self.word(at, "how many")) is None:
            return
        yield from self._count_of(start)
        yield from self._count_of_distinct(start)
        for noun, middle in self.noun(start):
            for _, second in self.one_of(middle, ("do", "does", "did")):
                for owner, after in self.noun(second):
                    if (end := self.word(after, "have")) is not None:
                        condition = HasRelated(owner, preposition="of")
                        counted = replace(noun, conditions=(*noun.conditions, condition))
                        yield from self._with_tail(Question(counted, (Measure("count"),)), end)
                if (each := self.word(second, "each")) is not None:
                    for table, after in self.table(each):
                        if (end := self.word(after, "have")) is not None:
                            group = Group((each, after), table=table, is_each=True)
                            yield from self._with_tail(Question(noun, (Measure("count"),), groups=(group,)), end)

    def _counted(self, at: int) -> Iterator[tuple[Question, int]]:
        for start in self.optional(at, ("the", "a", "a count of", "the total")):
            for _, counted in self.one_of(start, vocabulary.COUNTS):
                yield from self._count_of(counted)
                yield from self._count_of_distinct(counted)

    def _count_of(self, at: int) -> Iterator[tuple[Question, int]]:
        for noun, middle in self.noun(at):
            yield from self._with_tail(Question(noun, (Measure("count"),)), middle)

    def _count_of_distinct(self, at: int) -> Iterator[tuple[Question, int]]:
        for _, start in self.one_of(at, vocabulary.DISTINCT):
            for column, middle in self.column(start):
                question = Question(_NOWHERE, (Measure("count_distinct", column),))
                for after in self.optional(middle, vocabulary.THERE):
                    yield from self._with_noun(question, after)

    def _measured(self, at: int) -> Iterator[tuple[Question, int]]:
        for start in self.optional(at, ("the", "our")):
            for measures, middle in self._measures(start):
                yield from self._with_noun(Question(_NOWHERE, measures), middle)

    @rule
    def _measures(self, at: int) -> Iterator[tuple[tuple[Measure, ...], int]]:
        """`average price`, `minimum and maximum price`, `average price and total stock`."""
        for first, middle in self._measure(at):
            yield first, middle
            for _, start in self.one_of(middle, _AND):
                for further in self.optional(start, ("the",)):
                    for rest, end in self._measures(further):
                        yield (*first, *rest), end

    def _measure(self, at: int) -> Iterator[tuple[tuple[Measure, ...], int]]:
        for functions, middle in self._functions(at):
            for start in self.optional(middle, ("the",)):
                for column, end in self.column(start):
                    yield tuple(replace(measure, column=column) for measure in functions), end

    def _functions(self, at: int) -> Iterator[tuple[tuple[Measure, ...], int]]:
        for is_of_dates, table in ((False, vocabulary.AGGREGATES), (True, vocabulary.DATE_AGGREGATES)):
            for function, middle in self.meaning(at, table):
                first = Measure(function, is_of_dates=is_of_dates)
                yield (first,), middle
                for _, start in self.one_of(middle, _AND):
                    for rest, end in self._functions(start):
                        yield (first, *rest), end

    def _when(self, at: int) -> Iterator[tuple[Question, int]]:
        """`when was the latest order`."""
        for _, start in self.one_of(at, ("when was the", "when is the")):
            for function, middle in self.meaning(start, vocabulary.DATE_AGGREGATES):
                for noun, end in self.noun(middle):
                    if noun.table is not None and not noun.table.is_plural and not noun.has_article:
                        column = ColumnPhrase((start, middle), role="date")
                        yield Question(noun, (Measure(function, column),)), end

    # -- rows --------------------------------------------------------------------------------------------------------

    def _listed(self, at: int, *, is_which: bool) -> Iterator[tuple[Question, int]]:
        for noun, middle in self.rows(at):
            # "a product" is one of them, and nobody says which.
            if not (is_which and noun.has_article) and self.lower(at) not in ("a", "an", "any"):
                yield from self._with_order(Question(noun), middle)
        if not is_which:
            for start in self.optional(at, vocabulary.ARTICLES):
                yield from self._columns_of(start)

    def _columns_of(self, at: int) -> Iterator[tuple[Question, int]]:
        """`names and prices of products`, `product names`."""
        for columns, middle in self._columns(at):
            if (start := self.word(middle, "of")) is not None:
                for noun, after in self.rows(start):
                    yield from self._with_order(Question(noun, columns=columns), after)
            owner = columns[0].owner
            if owner is not None and (owner.is_plural or self._is_last_plural(columns[-1])):
                for found, after in self.conditions(middle):
                    conditions = tuple(one for one in found if not isinstance(one, Top))
                    if len(conditions) == len(found):
                        yield from self._with_order(Question(NounPhrase(owner, conditions), columns=columns), after)

    def _is_last_plural(self, column: ColumnPhrase) -> bool:
        return self.tokens[column.span[1] - 1].lower.endswith("s")

    @rule
    def _columns(self, at: int) -> Iterator[tuple[tuple[ColumnPhrase, ...], int]]:
        for column, middle in self.column(at):
            yield (column,), middle
            for _, start in self.one_of(middle, _AND):
                for further in self.optional(start, ("the",)):
                    for rest, end in self._columns(further):
                        if all(one.owner is None for one in rest):
                            yield (column, *rest), end

    def _distinct(self, at: int) -> Iterator[tuple[Question, int]]:
        """`the different cities of customers`."""
        for start in self.optional(at, ("the", "all", "all the")):
            for _, second in self.one_of(start, vocabulary.DISTINCT):
                for column, middle in self.column(second):
                    question = Question(_NOWHERE, columns=(column,), is_distinct=True)
                    for after in self.optional(middle, vocabulary.THERE):
                        for found, end in self._with_noun(question, after):
                            if not found.groups:
                                yield found, end

    # -- groups ------------------------------------------------------------------------------------------------------

    def _group_extremes(self, at: int) -> Iterator[tuple[Question, int]]:
        """`which city has the most customers`, `the category with the highest average price`."""
        for start in self.optional(at, ("the",)):
            for key, middle in self._group_key(start):
                for _, verb in self.one_of(middle, ("has the", "have the", "with the", "having the", "that has the")):
                    if key.column is not None:
                        for is_largest, second in self.meaning(verb, vocabulary.MOST):
                            for noun, end in self.noun(second):
                                yield _grouped(noun, Measure("count"), key, Top(is_largest)), end
                    for (is_largest, measure), after in self.extreme_measure(verb):
                        base = _grouped(_NOWHERE, measure, key, Top(is_largest))
                        yield from self._with_noun(base, after)

    def _group_ranks(self, at: int) -> Iterator[tuple[Question, int]]:
        """`top 3 cities by number of customers`."""
        for start in self.optional(at, ("the",)):
            for is_largest, number, second in self.ranks(start):
                for column, middle in self.column(second):
                    key = Group((second, middle), column)
                    if (by := self.word(middle, "by")) is None:
                        continue
                    for _, counted in self.one_of(by, vocabulary.COUNTS):
                        for noun, end in self.noun(counted):
                            yield _grouped(noun, Measure("count"), key, Top(is_largest, number=number)), end

    @rule
    def _groups(self, at: int) -> Iterator[tuple[tuple[Group, ...], int]]:
        """`per city`, `for each customer`, `by city and status`."""
        for is_each, table in ((False, vocabulary.PER), (True, vocabulary.EACH)):
            for _, start in self.one_of(at, table):
                for key, middle in self._group_key(start):
                    if key.table is not None and key.table.is_plural:
                        # "orders by customers from Berlin" are theirs, and no groups.
                        continue
                    first = replace(key, is_each=is_each)
                    yield (first,), middle
                    for _, second in self.one_of(middle, (*_AND, "per", "and per", "and by")):
                        for starts in self.optional(second, ("the",)):
                            for further, end in self._group_key(starts):
                                yield (first, further), end

    def _group_key(self, at: int) -> Iterator[tuple[Group, int]]:
        for start in self.optional(at, ("the",)):
            for column, end in self.column(start):
                yield Group((at, end), column), end
            for table, end in self.table(start):
                yield Group((at, end), table=table), end
            for date_format, end in self.meaning(start, vocabulary.DATE_PARTS):
                yield Group((at, end), date_format=date_format), end

    # -- what follows ------------------------------------------------------------------------------------------------

    def _with_noun(self, question: Question, at: int) -> Iterator[tuple[Question, int]]:
        """`… of products in Berlin per city`, or the same without a noun."""
        yield from self._with_tail(question, at)
        for _, start in self.one_of(at, ("of", "for", "in", "across", "among", "from", "over")):
            for noun, middle in self.noun(start):
                yield from self._with_tail(replace(question, noun=noun), middle)

    def _with_tail(self, question: Question, at: int) -> Iterator[tuple[Question, int]]:
        for tail, end in self._tail(at):
            if question.groups and tail.groups:
                continue
            noun = replace(question.noun, conditions=(*question.noun.conditions, *tail.conditions))
            groups = question.groups or tail.groups
            yield replace(question, noun=noun, groups=groups, sorting=tail.sorting), end

    @rule
    def _tail(self, at: int) -> Iterator[tuple[Tail, int]]:
        yield Tail(), at
        for _, end in self.one_of(at, vocabulary.THERE):
            yield Tail(), end
        for start in self.optional(at, (",", "and", "are", "is")):
            for groups, middle in self._groups(start):
                for rest, end in self._tail(middle):
                    if not rest.groups:
                        yield replace(rest, groups=groups), end
        for condition, middle in self.condition(at):
            if not isinstance(condition, Top):
                for rest, end in self._tail(middle):
                    yield replace(rest, conditions=(condition, *rest.conditions)), end
        for sorting, end in self._sorting(at):
            yield Tail(sorting=sorting), end

    def _with_order(self, question: Question, at: int) -> Iterator[tuple[Question, int]]:
        yield question, at
        for sorting, end in self._sorting(at):
            yield replace(question, sorting=sorting), end

    def _sorting(self, at: int) -> Iterator[tuple[Sorting, int]]:
        for start in self.optional(at, (",", "and")):
            for _, second in self.one_of(start, vocabulary.SORTING):
                for further in self.optional(second, ("the",)):
                    for column, middle in self.column(further):
                        yield Sorting(column, is_descending=False), middle
                        for after in self.optional(middle, (",",)):
                            for is_descending, end in self.meaning(after, vocabulary.DIRECTIONS):
                                yield Sorting(column, is_descending), end
            for second in self.optional(start, ("the",)):
                for (is_largest, role), middle in self.meaning(second, vocabulary.SUPERLATIVES):
                    if (after_first := self.word(middle, "first")) is not None:
                        yield Sorting(ColumnPhrase((second, middle), role=role), is_largest), after_first


def _grouped(noun: NounPhrase, measure: Measure, key: Group, top: Top) -> Question:
    return Question(noun, (measure,), groups=(key,), top=top)
