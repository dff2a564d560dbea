"""The tree of errors is the one drawn in its docstring: names, parents, codes, statuses, exit codes."""

from __future__ import annotations

import inspect

import mulligan.errors as errors
from mulligan.errors import InputInvalid, LanguageError, MulliganError, Problem, RunFinished, render_warnings


def drawn() -> list[tuple[int, str, str, int, int]]:
    rows = [line for line in (errors.__doc__ or "").splitlines() if line.startswith("    ")]
    found = []
    for row in rows:
        name, code, status, exit_code = row.split()[:4]
        found.append(((len(row) - len(row.lstrip())) // 2 - 2, name, code, int(status), int(exit_code)))
    return found


def test_every_class_is_drawn_where_it_stands_and_with_what_it_says():
    classes = {n: c for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, MulliganError)}

    expected = {
        (sum(issubclass(above, MulliganError) for above in c.__mro__) - 1, name, c.code, c.http_status, c.exit_code)
        for name, c in classes.items()
    }

    assert set(drawn()) == expected
    assert len(drawn()) == len(classes)


def test_codes_are_unique():
    codes = [code for _, _, code, _, _ in drawn()]

    assert len(set(codes)) == len(codes)


def test_an_error_is_shown_with_its_code_and_what_to_do():
    error = RunFinished("run 42 completed, so there is nothing to cancel", hint="mulligan fork 42", run_id=42)

    assert error.render() == (
        "error[run.finished]: run 42 completed, so there is nothing to cancel\n  mulligan fork 42"
    )
    assert error.data == {"run_id": 42}


def test_a_long_word_and_a_long_text_are_cut_in_the_middle_where_they_are_shown():
    path = f"/start{'x' * 6000}/end"

    shown = InputInvalid(f"file '{path}' does not exist", hint=path).render()

    assert len(shown) < 700
    assert "file '/start" in shown and "/end' does not exist" in shown
    assert len(Problem("language.type", "much text " * 1000, path, hint=path).render()) < 5000
    assert len(LanguageError([Problem("language.unreadable", "no", path)]).render()) < 400


def test_of_many_warnings_the_first_of_each_kind_are_shown_and_the_others_counted():
    many = [Problem("warning.language.key", f"key {number}", "f", line=number) for number in range(1, 20_001)]
    one = Problem("warning.language.other", "one", "f", line=20_001)

    shown = render_warnings([*many, one])

    assert len(shown) == 12
    assert shown[0].startswith("warning[language.key]: f:1:0: key 1\n")
    assert shown[-2].startswith("warning[language.other]")
    assert shown[-1] == (
        "warning[language.key]: and 19,990 more of this kind\n  mulligan validate --json FILE lists all"
    )
