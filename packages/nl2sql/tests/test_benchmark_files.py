"""The file of a benchmark: what it may say, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan_nl2sql.benchmark.case_files import BenchmarkInvalid, Expected, read_benchmark
from mulligan_nl2sql.demo.benchmark import QUESTIONS, main

from .planning.refused_questions import AMBIGUOUS, NOT_UNDERSTOOD, UNKNOWN_WORDS

HEAD = '[databases]\nshop = "sqlite:///shop.db"\nsupport = "sqlite:///support.db"\n\n'
ONE = 'question = "q"\ndatabases = ["shop"]\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "cases.toml"
    file.write_text(text)
    return file


def test_a_case_says_what_is_expected_of_each_database(tmp_path: Path) -> None:
    text = HEAD + (
        f'[[cases]]\n{ONE}sql = "select 1"\ntags = ["a", "b", "a"]\n'
        f"[[cases]]\n{ONE}rows = [[1, 2024-01-31, 08:30:00]]\nordered = true\ntoday = 2024-02-01\n"
        f'[[cases]]\nquestion = " both "\nexpected.shop = {{sql = "select 1"}}\nexpected.support = {{rows = []}}\n'
        f"[[cases]]\n{ONE}refused = true\n"
    )

    found = read_benchmark(write(tmp_path, "today = 2025-11-17\n" + text), ["support=sqlite:///other.db"])

    assert found.databases == {"shop": "sqlite:///shop.db", "support": "sqlite:///other.db"}
    first, second, both, _ = found.cases
    assert (first.expected, first.tags, first.line) == ({"shop": Expected(sql="select 1")}, ["a", "b"], 6)
    assert first.today == "2025-11-17"
    assert second.expected["shop"] == Expected(rows=[[1, "2024-01-31", "08:30:00"]], ordered=True)
    assert second.today == "2024-02-01"
    assert (both.question, both.databases, list(both.expected)) == ("both", ["shop", "support"], ["shop", "support"])
    assert [case.must_be_refused for case in found.cases] == [False, False, False, True]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[cases]\n", ":1:8: expected ']]' at the end of an array declaration"),
        ("", " has no [[cases]]"),
        ("case = 1\n", ": unknown key 'case'"),
        ('[[cases]]\nquestion = "q"\nrefused = true\n', " has no [databases]: add them, or give --db NAME=URL"),
        (f"{HEAD}[[cases]]\nquestoin = 'q'\n", ":6: case 1: unknown key 'questoin'; did you mean 'question'?"),
        (f"{HEAD}[[cases]]\nrefused = true\n", ":5: case 1: object missing required field 'question'"),
        (f"{HEAD}[[cases]]\nquestion = ' '\nrefused = true\n", ":6: case 1: the question is empty"),
        (f"{HEAD}[[cases]]\nquestion = 7\n", ":6: case 1: expected 'str', got 'int' in question"),
        (
            f"{HEAD}[[cases]]\n{ONE}",
            ":5: case 1: it needs one of 'sql', 'rows', 'refused' and 'expected', and has none",
        ),
        (
            f"{HEAD}[[cases]]\n{ONE}refused = true\n[[cases]]\n{ONE}sql = 's'\nrows = []\n",
            ":9: case 2: it needs one of 'sql', 'rows', 'refused' and 'expected', and has 'sql' and 'rows'",
        ),
        (
            f"{HEAD}[[cases]]\n{ONE}refused = false\n",
            ":8: case 1: 'refused' is true, or the case says what is",
        ),
        (f"{HEAD}[[cases]]\n{ONE}sql = ' '\n", ":8: case 1: the expected SQL is empty"),
        (f"{HEAD}[[cases]]\n{ONE}expected = {{}}\n", ":8: case 1: 'expected' is empty"),
        (
            f"{HEAD}[[cases]]\n{ONE}expected.shop = {{}}\n",
            ":8: case 1: what is expected of 'shop' needs one of 'sql' and 'rows'",
        ),
        (
            f"{HEAD}[[cases]]\n{ONE}[cases.expected.support]\nrows = []\n",
            ":8: case 1: it expects rows of 'support', which it does not ask",
        ),
        (f"{HEAD}[[cases]]\n{ONE}rows = [[1], [1, 2]]\n", ":8: case 1: the rows differ in their number of columns"),
        (f"{HEAD}[[cases]]\n{ONE}rows = [[[1]]]\n", ":8: case 1: a value of a row is a list or a table"),
        (
            f'{HEAD}[[cases]]\nquestion = "q"\ndatabases = ["shopp"]\n',
            ":7: case 1: there is no database 'shopp'; did you mean 'shop'?",
        ),
        (
            f'{HEAD}[[cases]]\nquestion = "q"\nsql = "select 1"\n',
            ":7: case 1: it asks 2 databases: say of which, as in expected.shop = {sql = …}",
        ),
        # What looks like a case, in a text of several lines: the line is not known then.
        (f"{HEAD}[[cases]]\nquestion = '''\n[[cases]]\n'''\n", ": case 1: it needs one of"),
        ("\n\xff", ":2: it is not UTF-8"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "cases.toml"
    file.write_bytes(text.encode("latin-1", "ignore") if "\xff" in text else text.encode())

    with pytest.raises(BenchmarkInvalid) as refused:
        read_benchmark(file)

    assert refused.value.message.startswith(f"{file}{problem}"), refused.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkInvalid, match="cannot be read: no such file or directory"):
        read_benchmark(tmp_path / "none.toml")


def test_the_only_database_of_a_file_may_be_another_one(tmp_path: Path) -> None:
    file = write(tmp_path, '[databases]\nshop = "sqlite:///a.db"\n[[cases]]\nquestion = "q"\nrefused = true\n')

    assert read_benchmark(file, ["duckdb:///b.duckdb"]).databases == {"shop": "duckdb:///b.duckdb"}


def test_the_benchmark_of_the_demo_has_the_questions_that_must_be_refused_too(tmp_path: Path) -> None:
    copy = tmp_path / "shop.toml"

    assert (main([str(copy)]), main([str(copy)]), main([])) == (0, 1, 2)

    assert copy.read_text() == QUESTIONS.read_text()
    refused = [case.question for case in read_benchmark(copy).cases if case.must_be_refused]
    assert refused == [one[0] for one in (*UNKNOWN_WORDS, *NOT_UNDERSTOOD, *AMBIGUOUS)]
