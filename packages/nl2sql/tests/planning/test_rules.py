"""The planner without a model: right answers, and refusals that name words."""

from __future__ import annotations

import random
import sqlite3
from datetime import date
from functools import cache
from typing import Any

import pytest
from tests.support.nightly import examples

from mulligan_nl2sql.checking.check import check
from mulligan_nl2sql.demo.shop import shop_schema
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.planning.planner import Plan, PlanRequest, Refusal, RefusalReason
from mulligan_nl2sql.planning.rules.planner import RulesPlanner, plan
from mulligan_nl2sql.planning.rules.tokens import tokenize
from mulligan_nl2sql.schema import Schema

from .answered_questions import ANSWERED, SORTED
from .refused_questions import AMBIGUOUS, NOT_UNDERSTOOD, UNKNOWN_WORDS

TODAY = date(2025, 11, 17)
REFUSED = (
    *((question, words, RefusalReason.UNKNOWN_WORDS) for question, words in UNKNOWN_WORDS),
    *((question, words, RefusalReason.NOT_UNDERSTOOD) for question, words in NOT_UNDERSTOOD),
    *((question, words, RefusalReason.AMBIGUOUS) for question, words, _ in AMBIGUOUS),
)


SCHEMA = shop_schema()


@cache
def answer(question: str) -> Plan:
    found = plan(question, SCHEMA, TODAY)
    assert isinstance(found, Plan), found
    return found


def explained_words(found: Plan) -> list[str]:
    return [word for one in found.explained for word in one.words.split(" ")]


def rows(connection: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement. Sums of floats differ in their last digits."""
    found = connection.execute(sql).fetchall()
    return [tuple(round(value, 6) if isinstance(value, float) else value for value in row) for row in found]


@pytest.mark.parametrize(("question", "sql"), ANSWERED)
def test_a_question_is_answered_as_a_person_would(question: str, sql: str, shop: sqlite3.Connection) -> None:
    found = answer(question)

    expected = rows(shop, sql)

    assert sorted(rows(shop, found.sql), key=repr) == sorted(expected, key=repr)
    assert expected


@pytest.mark.parametrize(("question", "sql"), SORTED)
def test_an_order_that_is_asked_for_is_kept(question: str, sql: str, shop: sqlite3.Connection) -> None:
    assert rows(shop, answer(question).sql) == rows(shop, sql)


@pytest.mark.parametrize(("question", "words", "reason"), REFUSED)
def test_what_is_not_understood_is_refused_and_the_words_are_named(
    question: str, words: tuple[str, ...], reason: RefusalReason, schema: Schema
) -> None:
    found = plan(question, schema, TODAY)

    assert isinstance(found, Refusal), found
    assert found.reason is reason
    assert set(words) <= set(found.words)
    assert found.message


@pytest.mark.parametrize(("question", "words", "candidates"), AMBIGUOUS)
def test_an_ambiguous_question_is_refused_with_the_candidates(
    question: str, words: tuple[str, ...], candidates: tuple[str, ...], schema: Schema
) -> None:
    found = plan(question, schema, TODAY)

    assert isinstance(found, Refusal)
    assert all(any(wanted in candidate for candidate in found.candidates) for wanted in candidates), found.candidates


def test_there_are_as_many_questions_as_were_promised() -> None:
    assert len({question for question, _ in ANSWERED}) >= 120
    assert len({question for question, *_ in REFUSED}) >= 60


def test_every_statement_passes_the_check_and_every_word_is_explained(schema: Schema) -> None:
    for question, _ in (*ANSWERED, *SORTED)[:: examples(5, 1)]:
        found = answer(question)

        checked = check(found.sql, schema, Limits())

        assert checked.sql
        assert explained_words(found) == " ".join(token.text for token in tokenize(question)).split(" ")
        assert all(one.meaning for one in found.explained)


def test_the_proof_says_what_each_word_means() -> None:
    found = answer("customers in Berlin with more than 3 orders in 2024")

    meanings = {one.words: one.meaning for one in found.explained}

    assert meanings["customers"] == "table customers"
    assert meanings["Berlin"] == "value of customers.city"
    assert meanings["orders"] == "table orders"
    assert meanings["in 2024"] == "from 2024-01-01 to 2024-12-31, in orders.ordered_on"
    assert found.tables == ("customers", "orders")


# -- no word is ignored ----------------------------------------------------------------------------------------------

STRANGE = ("frobnicate", "zwölf", "§", "almost", "cheapish", "DROP", "0x1F", "#", "`", "\\", "非常", "12abc")


def test_a_strange_word_anywhere_in_a_question_makes_it_refused(schema: Schema) -> None:
    chance = random.Random(5)
    for question, _ in ANSWERED[::2]:
        if '"' in question or "'" in question:
            # Within quotes it would be a part of the value.
            continue
        words = question.split(" ")
        word = chance.choice(STRANGE)
        words.insert(chance.randrange(len(words) + 1), word)

        found = plan(" ".join(words), schema, TODAY)

        assert isinstance(found, Refusal), words
        assert word in "".join(found.words)


def test_a_word_of_the_question_is_never_ignored(schema: Schema) -> None:
    """Without a value, a number or a name of the question, it has another answer or none."""
    chance = random.Random(6)
    for question, _ in ANSWERED[::2]:
        found = answer(question)
        # Names of tables and columns can stand beside a word for the same.
        telling = [one for one in found.explained if one.meaning.startswith(("value", "number", "from ", "on "))]
        if not telling:
            continue
        left_out = chance.choice(telling).words
        if left_out not in question:
            continue
        shorter = question.replace(left_out, "", 1).replace("  ", " ").strip()

        other = plan(shorter, schema, TODAY)

        assert isinstance(other, Refusal) or other.sql != found.sql, (question, shorter)


def test_shuffled_words_are_refused_or_all_explained(schema: Schema, shop: sqlite3.Connection) -> None:
    chance = random.Random(7)
    answered = 0
    for question, _ in ANSWERED[1::2]:
        words = question.rstrip("?").split(" ")
        chance.shuffle(words)
        shuffled = " ".join(words)

        found = plan(shuffled, schema, TODAY)

        if isinstance(found, Plan):
            answered += 1
            assert explained_words(found) == " ".join(token.text for token in tokenize(shuffled)).split(" ")
            rows(shop, found.sql)
    # Few orders of words are English.
    assert answered < len(ANSWERED) / 10


def test_words_of_the_vocabulary_in_any_order_never_crash(schema: Schema, shop: sqlite3.Connection) -> None:
    chance = random.Random(8)
    words = sorted({word for question, _ in (*ANSWERED, *SORTED) for word in question.rstrip("?").split(" ")})
    for _ in range(250):
        question = " ".join(chance.choice(words) for _ in range(chance.randrange(1, 9)))

        found = plan(question, schema, TODAY)

        if isinstance(found, Plan):
            rows(shop, found.sql)
        else:
            assert found.words


def test_a_question_without_words_and_a_very_long_one_are_refused(schema: Schema) -> None:
    for question in ("", "   ", "?", "customers " * 400, "customers in " + "Berlin or " * 45 + "Berlin"):
        assert isinstance(plan(question, schema, TODAY), Refusal)


def test_the_planner_gives_the_same_statement_again_for_a_repair(schema: Schema) -> None:
    request = PlanRequest("how many customers are there", schema, TODAY)

    assert RulesPlanner().plan(request) == RulesPlanner().plan(request)
