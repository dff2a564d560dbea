"""The tree of errors is the one drawn in its docstring: names, parents, codes, statuses, exit codes."""

from __future__ import annotations

import inspect

import mulligan.errors as errors
from mulligan.errors import MulliganError, RunFinished


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
