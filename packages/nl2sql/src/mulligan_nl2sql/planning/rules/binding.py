"""From what a question says to what it means in this schema, or to the reason why it means nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.planning.rules.columns import Columns
from mulligan_nl2sql.planning.rules.lexicon import Kind, ValueMeaning, is_key, kind_of
from mulligan_nl2sql.planning.rules.phrases import (
    Amount,
    Compares,
    Comparison,
    Condition,
    Happened,
    HasColumn,
    HasKey,
    HasRelated,
    HasValue,
    IsFlag,
    NounPhrase,
    Participle,
    Question,
    Span,
    Top,
    ValuePhrase,
)
from mulligan_nl2sql.planning.rules.problems import Ambiguous, Problem, Unclear
from mulligan_nl2sql.planning.rules.query import (
    DayTest,
    Equals,
    ExistsTest,
    Filter,
    FlagTest,
    NullTest,
    NumberTest,
    Place,
    RelatedTest,
    moved,
    returns_to,
)
from mulligan_nl2sql.planning.rules.tokens import Token
from mulligan_nl2sql.planning.rules.word_forms import words_of
from mulligan_nl2sql.schema import Table


class Filters:
    """Turns conditions into filters."""

    def __init__(self, columns: Columns, tokens: tuple[Token, ...]) -> None:
        self.columns = columns
        self._tokens = tokens

    def of_noun(self, noun: NounPhrase, table: Table) -> tuple[Filter, ...]:
        """The filters for the rows of a noun, without doubles."""
        found: list[Filter] = []
        latest: list[Filter] = []
        for at, condition in enumerate(noun.conditions):
            before = noun.conditions[at - 1] if at else None
            _refuse_far_value(condition, before)
            previous, latest = () if _ends_with_related(before) else tuple(latest), []
            for one in self._filters(condition, noun, table):
                latest.append(one)
                self._refuse_detour(one, found, table)
                _refuse_contradiction(one, found, previous, condition)
                if one not in found:
                    found.append(one)
        return tuple(found)

    def _filters(self, condition: Condition, noun: NounPhrase, table: Table) -> Iterator[Filter]:
        match condition:
            case HasValue():
                yield self._value(condition, noun, table)
            case Compares():
                yield self._number(condition, table)
            case Happened():
                yield self._time(condition, table)
            case IsFlag():
                yield self._flag(condition, table)
            case HasColumn():
                yield self._presence(condition, table)
            case HasKey():
                yield self._key(condition, noun, table)
            case Participle():
                place = self.columns.find(condition.column, table, is_own=True)
                yield NullTest(place, is_null=False)
            case HasRelated():
                yield from self._related(condition, table)

    @staticmethod
    def _refuse_detour(one: Filter, earlier: list[Filter], table: Table) -> None:
        """Refuse `orders (with products) (in category Music)`: the category is that of these products."""
        if not isinstance(one, RelatedTest):
            return
        between = [step.target for step in one.path[:-1]]
        for other in earlier:
            if isinstance(other, RelatedTest) and other.path[-1].target in between:
                raise Problem(f"this belongs to {other.path[-1].target.name}, and not to {table.name}")

    # -- values ------------------------------------------------------------------------------------------------------

    def _value(self, condition: HasValue, noun: NounPhrase, table: Table) -> Equals:
        if condition.column is not None:
            place = self.columns.find(condition.column, table)
            if kind_of(place.column) is not Kind.TEXT:
                raise Problem(f"{place} is no text", condition.column.span)
            values = [text for value in condition.values for text in _stored(value, place)]
        else:
            place, values = self._by_value(condition, table)
            self._refuse_twin(condition, place)
            self._refuse_time(condition, place, noun)
        self._check_words(condition, place)
        for value in condition.values:
            self.columns.explain(value.span, f"value of {place}")
        return Equals(place, tuple(dict.fromkeys(values)), condition.is_negated)

    def _by_value(self, condition: HasValue, table: Table) -> tuple[Place, list[str]]:
        """The one column that has all these values, of the table or of rows that it refers to."""
        near = self.columns.joins.reachable(table)
        found: dict[tuple[str, str], list[ValueMeaning]] = {}
        for value in condition.values:
            for meaning in value.meanings:
                if meaning.table in near:
                    found.setdefault((meaning.table.full_name, meaning.column.name), []).append(meaning)
        span = (condition.values[0].span[0], condition.values[-1].span[1])
        shared = [meanings for meanings in found.values() if _values_of(meanings) >= len(condition.values)]
        if not shared and len(condition.values) == 1 and condition.values[0].text is not None:
            return self._by_label(condition, table)
        if not shared:
            raise Problem(f"no column of {table.name}, or of what it refers to, has this value", span)
        if len(shared) > 1:
            names = [f"{meanings[0].table.name}.{meanings[0].column.name}" for meanings in shared]
            raise Ambiguous("this value is in several columns", span, names)
        chosen = shared[0]
        if len(chosen) > len(condition.values):
            raise Ambiguous("this may mean several values", span, [text for one in chosen for text in one.values])
        path = self.columns.path_up(table, chosen[0].table, span)
        texts = [text for meaning in chosen for text in meaning.values]
        return Place(path, chosen[0].table, chosen[0].column), texts

    def _refuse_twin(self, condition: HasValue, place: Place) -> None:
        """`shipped orders`: a status, unless there is also a date of the shipping, which later states have too."""
        for value in condition.values if condition.is_loose else ():
            events = self.columns.lexicon.events.get(tuple(words_of(" ".join(_texts(value)))), ())
            if events:
                names = [str(place), *(f"{one.table.name}.{one.column.name}" for one in events)]
                raise Ambiguous("this may be a value, or say that a date is set", value.span, names)

    @staticmethod
    def _refuse_time(condition: HasValue, place: Place, noun: NounPhrase) -> None:
        """`loans in May`, where a branch has this name: a value or a time."""
        if condition.is_loose and not condition.is_before_noun and not place.path:
            # "branch May"
            return
        starts = {one.column.span[1] + 1 for one in noun.conditions if isinstance(one, Participle)}
        for value in condition.values:
            if value.is_time:
                # "published in 1984" can be a time in another reading, and is nothing else then.
                kind = Unclear if condition.preposition and value.span[0] in starts else Ambiguous
                raise kind("this may be a value or a time", value.span, [f"value of {place}", "a time"])

    def _by_label(self, condition: HasValue, table: Table) -> tuple[Place, list[str]]:
        """`customer "Ada Adler"`: the name of the row."""
        value = condition.values[0]
        label = self.columns.label(table)
        if label is None or not condition.is_loose or condition.is_before_noun:
            raise Problem("it is not said which column has this text", value.span)
        return Place((), table, label), [value.text or ""]

    def _check_words(self, condition: HasValue, place: Place) -> None:
        """The words around a value must fit the column."""
        span = (max(condition.values[0].span[0] - 1, 0), condition.values[0].span[0])
        words = {word for step in place.path for own, _ in step.columns for word in words_of(own)}
        words |= set(words_of(place.column.name))
        leads_there = bool(words & vocabulary.DESTINATIONS)
        if condition.preposition == "to" and not leads_there:
            raise Problem(f"{place} is not where something goes to", span)
        if condition.preposition in ("from", "by") and leads_there:
            raise Problem(f"{place} is not where something comes from", span)
        if condition.preposition in vocabulary.DIRECTED and not all(step.is_plain for step in place.path):
            raise Problem(f"it is not said how {place} is meant", span)
        is_moving = bool(place.path) and bool(vocabulary.MOVING.intersection(words_of(place.path[0].source.name)))
        if condition.preposition == "from" and (len(place.path) > 1 or is_moving):
            raise Problem(f"{place} need not be where something comes from", span)
        if condition.verb and not self._verb_fits(condition.verb, place):
            raise Problem(f"'{condition.verb}' is not explained by the comment of {place}", (span[0] - 1, span[0]))

    def _verb_fits(self, verb: str, place: Place) -> bool:
        if verb in vocabulary.LIVING and words_of(place.column.name)[-1] in vocabulary.PLACES:
            return True
        return self.columns.lexicon.comment_explains(place.table, place.column, verb)

    # -- numbers, times, flags ---------------------------------------------------------------------------------------

    def _number(self, condition: Compares, table: Table) -> NumberTest:
        amounts = condition.comparison.amounts
        place = (
            self.columns.find(condition.column, table)
            if condition.column is not None
            else self._by_unit(amounts[-1], table)
        )
        if kind_of(place.column) is not Kind.NUMBER:
            raise Problem(f"{place} is no number", amounts[0].span)
        for amount in amounts:
            self.columns.explain(amount.span, "number")
            if amount.units is not None:
                if not any(unit.table is place.table and unit.column is place.column for unit in amount.units):
                    raise Problem(f"{place} has another unit", amount.unit_span)
                self.columns.explain(amount.unit_span, f"unit of {place}")
        return NumberTest(place, condition.comparison.operator, tuple(amount.number for amount in amounts))

    def _by_unit(self, amount: Amount, table: Table) -> Place:
        own = [unit for unit in amount.units or () if unit.table is table]
        if not own:
            raise Problem(f"no column of {table.name} has this unit", amount.span)
        if len(own) > 1:
            names = [f"{table.name}.{unit.column.name}" for unit in own]
            raise Ambiguous("several columns have this unit", amount.unit_span, names)
        return Place((), table, own[0].column)

    def _time(self, condition: Happened, table: Table) -> DayTest:
        place = self._date(condition, table)
        self.columns.explain(condition.span, f"{condition.period}, in {place}")
        start, end = condition.period.start, condition.period.end
        return DayTest(place, start.isoformat() if start else "", end.isoformat() if end else "", condition.is_negated)

    def _date(self, condition: Happened, table: Table) -> Place:
        if condition.column is not None:
            return self.columns.happened(condition.column, table)
        if not condition.verb:
            return self.columns.event(table, condition.span)
        verb_span = (condition.span[0] - 1, condition.span[0])
        explained = [
            column
            for column in table.columns
            if kind_of(column) is Kind.DATE and self.columns.lexicon.comment_explains(table, column, condition.verb)
        ]
        if len(explained) == 1:
            return Place((), table, explained[0])
        is_event = any(one.table is table for one in self.columns.lexicon.events.get((condition.verb,), ()))
        if condition.verb in vocabulary.RECORDING_VERBS and not is_event and not explained:
            return self.columns.event(table, condition.span)
        raise Problem(f"'{condition.verb}' names no date of {table.name}", verb_span)

    def _presence(self, condition: HasColumn, table: Table) -> NullTest:
        place = self.columns.find(condition.column, table, is_own=True)
        if not place.column.is_nullable:
            raise Problem(f"{place} always has a value", condition.column.span)
        if kind_of(place.column) is Kind.NUMBER and not condition.has_article:
            raise Ambiguous(
                "this may mean none, or zero", condition.column.span, [f"{place} is missing", f"{place} = 0"]
            )
        return NullTest(place, condition.is_negated)

    def _flag(self, condition: IsFlag, table: Table) -> FlagTest:
        own = [one for one in condition.flag.candidates if one.table is table]
        if len(own) != 1:
            raise Problem(f"{table.name} has no such flag", condition.flag.span)
        self.columns.explain(condition.flag.span, f"column {table.name}.{own[0].column.name}")
        return FlagTest(Place((), table, own[0].column), not condition.is_negated)

    def _key(self, condition: HasKey, noun: NounPhrase, table: Table) -> NumberTest:
        keys = [column for column in table.columns if column.name in table.primary_key]
        is_plural = noun.table is not None and noun.table.is_plural
        if len(keys) != 1 or kind_of(keys[0]) is not Kind.NUMBER or is_plural:
            raise Problem(f"{table.name} cannot be found by a number", condition.span)
        place = Place((), table, keys[0])
        self.columns.explain(condition.span, f"value of {place}")
        return NumberTest(place, vocabulary.EQ, (condition.number,))

    # -- other tables ------------------------------------------------------------------------------------------------

    def related(self, noun: NounPhrase, table: Table, span: Span, *, is_counted: bool = False) -> RelatedTest:
        """Rows of another table that belong to a row of this one."""
        assert noun.table is not None
        target = self.columns.table(noun.table)
        if target is table:
            raise Problem(f"{table.name} is not related to itself", noun.table.span)
        path = self.columns.path(table, target, noun.table.span)
        filters = self.of_noun(noun, target)
        if not all(step.is_up for step in path):
            self._refuse_unclear_many(noun, noun.table.span, is_counted=is_counted)
        if any(returns_to(one, table) for one in filters):
            raise Problem(f"this belongs to {table.name}, and not to {target.name}", span)
        return RelatedTest(path, filters)

    def _refuse_unclear_many(self, noun: NounPhrase, span: Span, *, is_counted: bool) -> None:
        """Refuse what may be said of one of many rows, or of all of them together."""
        if noun.is_every:
            raise Problem("the rules cannot ask whether something holds for all rows", (span[0] - 1, span[1]))
        if is_counted:
            return
        after = [one for one in noun.conditions if not getattr(one, "is_before_noun", False)]
        for said in after if len(after) > 1 else ():
            if isinstance(said, (HasValue, IsFlag, Happened)) and said.is_negated:
                message = "this may be said of one row, or of all of them"
                raise Ambiguous(message, _span_of(said), ["one row", "all rows"])
        for one in noun.conditions:
            if isinstance(one, HasValue) and len(one.values) > 1:
                first, end = one.values[0].span[1], one.values[-1].span[0]
                if any(token.lower == "and" for token in self._tokens[first:end]):
                    raise Ambiguous("this may mean either or both", _span_of(one), ["either", "both"])

    def counted(self, noun: NounPhrase, table: Table, span: Span) -> RelatedTest:
        """The same, if the rows can be counted: each of them belongs to one row."""
        found = self.related(noun, table, span, is_counted=True)
        if any(step.is_up for step in found.path):
            target = found.path[-1].target.name
            raise Problem(f"rows of {target} belong to several of {table.name}, so they would count twice", span)
        return found

    def _related(self, condition: HasRelated, table: Table) -> Iterator[Filter]:
        noun = condition.noun
        assert noun.table is not None
        span = noun.table.span
        if condition.count is not None:
            yield self._with_count(self.counted(noun, table, span), condition.count)
            return
        found = self.related(noun, table, span)
        is_up = all(step.is_up for step in found.path)
        self._check_preposition(condition, found, span, is_up=is_up)
        if condition.is_negated or not is_up:
            yield replace(found, is_negated=condition.is_negated)
            return
        yield ExistsTest(found.path)
        for one in found.filters:
            yield moved(one, found.path)

    @staticmethod
    def _check_preposition(condition: HasRelated, found: RelatedTest, span: Span, *, is_up: bool) -> None:
        noun, preposition = condition.noun, condition.preposition
        if preposition in vocabulary.DIRECTED and not (is_up and all(step.is_plain for step in found.path)):
            raise Problem(f"'{preposition}' does not say how the tables are related", span)
        if condition.is_negated or noun.conditions:
            return
        is_certain = noun.has_article or (noun.table is not None and noun.table.is_plural)
        if preposition == "by" or not is_certain:
            raise Problem("it is not said which rows are meant", span)

    def _with_count(self, found: RelatedTest, comparison: Comparison) -> RelatedTest:
        for amount in comparison.amounts:
            if amount.units is not None or not amount.number.isdigit():
                raise Problem("rows are counted in whole numbers", amount.span)
            self.columns.explain(amount.span, "number of rows")
        return replace(
            found, operator=comparison.operator, numbers=tuple(amount.number for amount in comparison.amounts)
        )


def _refuse_contradiction(
    one: Filter, earlier: list[Filter], previous: tuple[Filter, ...], condition: Condition
) -> None:
    """Refuse `in Oslo and in Bergen`: no row has two cities, so something else is meant."""
    for other in earlier:
        match one, other:
            case Equals(), Equals():
                is_empty = (
                    one.place == other.place
                    and not (one.is_negated or other.is_negated)
                    and set(one.values).isdisjoint(other.values)
                )
            case DayTest(), DayTest():
                starts, ends = max(one.start, other.start), min(one.end or "9", other.end or "9")
                is_empty = one.place == other.place and not (one.is_negated or other.is_negated) and starts >= ends
            case _:
                is_empty = False
        if is_empty and other not in previous:
            # "members of branch North with loans in South": another reading has it that the loans are there.
            raise Problem("no row can have both", _span_of(condition))
        if is_empty:
            raise Ambiguous(
                "no row can have both; this may mean either or both", _span_of(condition), ["either", "both"]
            )


def _ends_with_related(condition: Condition | None) -> bool:
    """`with loans`, `of branch North with loans`: what follows may belong to the loans."""
    if not isinstance(condition, HasRelated):
        return False
    inner = condition.noun.conditions
    return not inner or isinstance(inner[-1], HasRelated)


def _refuse_far_value(condition: Condition, before: Condition | None) -> None:
    """Refuse `books (of the author) (of Emma)`: the second belongs to the first, in a reading of its own."""
    if not isinstance(condition, HasValue) or not isinstance(before, HasRelated) or before.count is not None:
        return
    table = before.noun.table
    is_one = before.noun.has_article and table is not None and not table.is_plural
    if condition.column is None and not before.is_negated and (condition.preposition == "of" or is_one):
        raise Problem("it is not said to what this belongs", _span_of(condition))


def _span_of(condition: Condition) -> Span:
    match condition:
        case HasValue():
            return condition.values[0].span[0], condition.values[-1].span[1]
        case Happened() | HasKey():
            return condition.span
        case IsFlag():
            return condition.flag.span
        case Participle() | HasColumn():
            return condition.column.span
        case Compares():
            return condition.comparison.amounts[0].span
        case HasRelated():
            return condition.noun.table.span if condition.noun.table is not None else (0, 0)


def refuse_split_states(question: Question) -> None:
    """Refuse `were cancelled in 2024` as a state and a time: it says when they were cancelled."""
    state_ends: dict[int, Span] = {}
    for noun in _parts(question, NounPhrase):
        for condition in noun.conditions:
            if isinstance(condition, HasValue) and condition.is_loose and not condition.is_before_noun:
                last = condition.values[-1].span
                state_ends[last[1]] = last
            elif isinstance(condition, IsFlag) and not condition.is_before_noun:
                state_ends[condition.flag.span[1]] = condition.flag.span
            elif isinstance(condition, Participle):
                state_ends[condition.column.span[1]] = condition.column.span
    for time in _parts(question, Happened):
        if time.column is None and not time.verb and time.span[0] in state_ends:
            first, end = state_ends[time.span[0]][0], time.span[1]
            raise Problem("no date says when this happened", (first, end))


def _stored(value: ValuePhrase, place: Place) -> Sequence[str]:
    """How a value is stored in a column."""
    for meaning in value.meanings:
        if meaning.table is place.table and meaning.column is place.column:
            return meaning.values
    if value.text is not None:
        return (value.text,)
    raise Problem(f"{place} has no such value", value.span)


def _texts(value: ValuePhrase) -> Sequence[str]:
    return value.meanings[0].values[:1] if value.meanings else ()


def _values_of(meanings: list[ValueMeaning]) -> int:
    return len({meaning.values for meaning in meanings})


def _parts(value: Any, kind: type[Any]) -> Iterator[Any]:
    """All structs of a kind within another."""
    if isinstance(value, kind):
        yield value
    if isinstance(value, tuple):
        for one in value:
            yield from _parts(one, kind)
    elif isinstance(value, (Question, NounPhrase, HasRelated, Top)):
        for name in value.__struct_fields__:
            yield from _parts(getattr(value, name), kind)


def check_number(place: Place, span: Span) -> None:
    if kind_of(place.column) is not Kind.NUMBER or is_key(place.table, place.column):
        raise Problem(f"{place} is no quantity", span)
