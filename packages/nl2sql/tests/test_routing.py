"""Which databases are asked what, by rules; which results are one table; what comes of failures. Nothing runs here."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from mulligan import StepError
from mulligan_nl2sql.planning.find_planner import find_planner
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.question_steps import decompose, resolve
from mulligan_nl2sql.routing.combining import ScanColumns, combine
from mulligan_nl2sql.routing.decomposing import split
from mulligan_nl2sql.routing.resolving import ReadDatabase
from mulligan_nl2sql.routing.verdicts import Missing, failed_scans, judge
from mulligan_nl2sql.schema import Column, Schema, Table

TODAY = date(2025, 11, 17)
RULES = find_planner("rules", {})


def database(name: str, **tables: str) -> ReadDatabase:
    """Each table has an id, and these columns: `name:type`."""
    made = []
    for table, columns in tables.items():
        typed = [Column(*one.split(":")) for one in columns.split()]
        made.append(Table("main", table, (Column("id", "INTEGER"), *typed), ("id",)))
    return ReadDatabase(name, f"sqlite:///{name}.db", Schema("sqlite", tuple(made), ("main",)))


SHOP = database("shop", orders="total:REAL ordered_on:DATE", customers="city:TEXT")
HELP = database("help", tickets="priority:TEXT opened_on:DATE", customers="city:TEXT")
BOTH = (SHOP, HELP)


@pytest.mark.parametrize(
    "question",
    [
        "how many orders are there and how many tickets are there?",
        "how many orders are there, and how many tickets were opened in 2024?",
        "how many orders in 2024 and how many tickets?",
        "how many orders are there? how many tickets are there?",
        "the number of orders; the number of tickets",
    ],
)
def test_a_question_is_split_if_each_part_is_a_question_of_one_database(question: str) -> None:
    scans = split(question, BOTH, TODAY, RULES)

    assert [(scan.number, scan.database) for scan in scans] == [(0, "shop"), (1, "help")]
    assert [("orders" in scan.question, "tickets" in scan.question) for scan in scans] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    "question",
    [
        # The year may belong to both.
        "how many orders and how many tickets were opened in 2024",
        "orders and tickets in 2024",
        # No question by itself.
        "how many orders and tickets",
        # Both have customers: which is meant?
        "how many orders are there and how many customers are there",
        # Part of a value.
        'how many "orders and how many tickets"',
        # Not all of it is explained.
        "how many orders are there and how many bananas are there",
        "how many orders are there",
        "and and and and and and",
        "",
    ],
)
def test_a_question_in_doubt_is_not_split(question: str) -> None:
    assert split(question, BOTH, TODAY, RULES) == ()


def index_of(*databases: ReadDatabase, unread: int = 0) -> dict[str, Any]:
    failures = [
        {"item": {"name": f"gone{at}"}, "code": "DATABASE_UNREACHABLE", "message": "no answer"} for at in range(unread)
    ]
    results = [
        {"database": one.database, "url": one.url, "schema": {"dialect": "sqlite", "tables": list(one.schema.tables)}}
        for one in databases
    ]
    return {"total": len(databases) + unread, "results": [*results, *[None] * unread], "failures": failures}


def resolved(question: str, index: dict[str, Any]) -> list[str]:
    databases = [{"name": name} for name in ("shop", "help", "gone0")[: index["total"]]]
    found = resolve(question, TODAY.isoformat(), "rules", databases, index)
    scans = decompose(question, TODAY.isoformat(), databases, index, found["candidates"])["scans"]
    return [scan["database"] for scan in scans]


def test_the_databases_whose_words_explain_the_question_are_asked() -> None:
    assert resolved("how many tickets are there", index_of(*BOTH)) == ["help"]
    assert resolved("how many customers are there", index_of(*BOTH)) == ["shop", "help"]


def test_words_that_no_database_explains_are_named() -> None:
    with pytest.raises(StepError) as raised:
        resolved("revenue of tickets", index_of(*BOTH))

    assert (raised.value.code, raised.value.details) == ("QUESTION_REFUSED", {"words": ["revenue"]})


def test_a_question_that_no_database_explains_alone_is_refused_with_what_each_of_them_says() -> None:
    with pytest.raises(StepError) as raised:
        resolved("how many orders and tickets", index_of(*BOTH))

    assert raised.value.code == "QUESTION_REFUSED"
    assert "shop: not explained by the schema: 'tickets'" in raised.value.message
    assert "help: not explained by the schema: 'orders'" in raised.value.message


def test_a_hidden_table_explains_nothing() -> None:
    policy = Policy(hidden=("tickets",))
    hidden = ReadDatabase("help", HELP.url, policy.apply(HELP.schema))

    with pytest.raises(StepError) as raised:
        resolved("how many tickets are there", index_of(SHOP, hidden))

    assert raised.value.details == {"words": ["tickets"]}


@pytest.mark.parametrize("question", ["how many tickets are there", "how many orders and tickets"])
def test_it_is_no_refusal_if_a_database_could_not_be_read_that_may_explain_the_question(question: str) -> None:
    with pytest.raises(StepError) as raised:
        resolved(question, index_of(SHOP, unread=1))

    assert (raised.value.code, raised.value.retryable) == ("DATABASE_UNREACHABLE", True)
    assert "the others do not explain" in raised.value.message


def test_only_the_same_question_and_the_same_columns_of_different_databases_are_one_table() -> None:
    def scan(number: int, database: str, question: str = "q", columns: str = "a b") -> ScanColumns:
        return ScanColumns(number, database, question, tuple(columns.split()))

    def tables(*scans: ScanColumns) -> list[tuple[tuple[int, ...], str]]:
        return [(table.scans, " ".join(table.columns)) for table in combine(scans)]

    assert tables(scan(0, "x"), scan(1, "y", "Q")) == [((0, 1), "database a b")]
    assert tables(scan(0, "x"), scan(1, "y", columns="b a")) == [((0,), "a b"), ((1,), "b a")]
    assert tables(scan(0, "x"), scan(1, "y", "other")) == [((0,), "a b"), ((1,), "a b")]
    assert tables(scan(0, "x"), scan(1, "x")) == [((0,), "a b"), ((1,), "a b")]
    assert tables(scan(0, "x", columns="database"), scan(1, "y", columns="database")) == [
        ((0, 1), "_database database")
    ]
    assert tables() == []


def missing(database: str, code: str, **fields: Any) -> Missing:
    return Missing(database=database, code=code, message="why", question="q", **fields)


@pytest.mark.parametrize(
    ("found", "code", "severity"),
    [
        ([missing("a", "QUESTION_REFUSED"), missing("b", "QUERY_TIMEOUT")], "QUERY_TIMEOUT", "error"),
        ([missing("a", "DATABASE_UNREACHABLE"), missing("b", "QUERY_TIMEOUT")], "DATABASE_UNREACHABLE", "error"),
        ([missing("a", "QUESTION_REFUSED"), missing("b", "QUESTION_REFUSED")], "QUESTION_REFUSED", "error"),
        ([missing("a", "QUERY_TIMEOUT", severity="critical")], "QUERY_TIMEOUT", "critical"),
    ],
)
def test_without_any_answer_it_is_a_failure_with_a_real_code(found: list[Missing], code: str, severity: str) -> None:
    with pytest.raises(StepError) as raised:
        judge(0, found, is_strict=False)

    assert (raised.value.code, raised.value.severity) == (code, severity)
    assert all(one.database in raised.value.message for one in found) or len(found) == 1


def test_with_some_answers_what_is_missing_fails_only_a_strict_question() -> None:
    judge(1, [missing("a", "QUERY_TIMEOUT")], is_strict=False)
    judge(1, [], is_strict=True)

    with pytest.raises(StepError) as raised:
        judge(1, [missing("a", "QUERY_TIMEOUT")], is_strict=True)

    assert raised.value.code == "ANSWER_INCOMPLETE"
    assert "a failed with QUERY_TIMEOUT: why" in raised.value.message


def test_of_a_scan_the_failure_inside_counts() -> None:
    inner = {"code": "QUESTION_REFUSED", "message": "why", "severity": "error", "details": {"words": ["x"], "sql": "…"}}
    outer = {"code": "CHILD_FAILED", "message": "child run 3 failed", "item": {"database": "a", "question": "q"}}

    (found,) = failed_scans([{**outer, "failures": [inner]}])
    (cancelled,) = failed_scans([{**outer, "failures": []}])

    assert (found.code, found.details, found.is_refusal) == ("QUESTION_REFUSED", {"words": ["x"]}, True)
    assert (cancelled.code, cancelled.message) == ("CHILD_FAILED", "child run 3 failed")
