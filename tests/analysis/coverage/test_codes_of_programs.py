"""The codes of failures that the source of a program names, and for which of its calls."""

from __future__ import annotations

import pytest

from mulligan.history.called_steps import codes_named

SOURCE = """\
def load(part):
    raise StepError("NO_SPACE", "none")

def inner():
    return load(1)

def nightly():
    load(0)
    try:
        load(1)
        inner()
    except StepFailed as failed:
        if failed.code in ("QUOTA", "TIMEOUT"):
            load(2)
    found = gather(load.call(3), failures="return")
    if found[0].code == "LATE" or found[0].code == "not a code":
        return 1

def weekly():
    load(4)
    match failed.code:
        case "CONNECTION" | "HTTP_5XX":
            pass
"""


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        (8, ("LATE",)),
        (10, ("QUOTA", "TIMEOUT", "LATE")),
        (5, ("QUOTA", "TIMEOUT", "LATE")),
        (14, ("LATE",)),
        (20, ("CONNECTION", "HTTP_5XX")),
    ],
)
def test_a_code_is_for_the_calls_whose_failures_come_to_where_it_is_compared(line: int, codes: tuple[str, ...]) -> None:
    assert set(codes_named(SOURCE, line, "other")) == set(codes)


def test_a_code_that_the_function_of_a_step_raises_is_for_its_calls() -> None:
    assert codes_named(SOURCE, 0, "load") == ("NO_SPACE",)


def test_a_source_that_cannot_be_read_names_nothing() -> None:
    assert codes_named("def (", 1, "load") == ()
