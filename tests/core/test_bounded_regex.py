"""Bounded regular expressions: they find what `re` finds, and no text takes long."""

from __future__ import annotations

import re
import sys
import warnings
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.deciding import bounded_regex
from mulligan.core.deciding.bounded_regex import Automaton, Backtracking, NotSearchable, is_found, refuse_unsearchable
from mulligan.core.deciding.conditions import matching_rule
from mulligan.core.model.failure import MESSAGE_CHARS_MAX, failure
from mulligan.core.model.workflow import Rule

# Parts that a valid expression is made of; `#` stands for another one.
PARTS = [
    *("a", "b", "ab", ".", "\\n", " ", "[ab]", "[^a]", "[]a]", "\\w", "\\d", "\\S", "\\x61", "\\141", "\\.", "é"),
    *("^", "$", "\\b", "\\B", "\\A", "\\Z", "", "(?#c)", "x{,", "{"),
    *("(#)", "(?:#)", "(?P<n>#)", "(?i:#)", "(?s:#)", "(?m:#)", "(?i-s:#)"),
    *("(?:#)*", "(?:#)+", "(?:#)?", "(?:#)*?", "(?:#){2}", "(?:#){1,3}", "(?:#){,2}", "(?:#){2,}", "#|#", "##"),
]
GLOBAL_FLAGS = ["", "", "(?i)", "(?m)", "(?s)", "(?ims)"]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    part = draw(st.sampled_from([part for part in PARTS if depth or "#" not in part]))
    while "#" in part.replace("(?#", ""):
        at = part.rindex("#")
        part = part[:at] + draw(expressions(depth=depth - 1)) + part[at + 1 :]
    return part


def is_valid(expression: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(expression)
        except re.error:
            return False
    return True


@settings(max_examples=examples(40, 100))
@given(
    st.sampled_from(GLOBAL_FLAGS),
    expressions().filter(lambda text: "(?P<n>" not in text.replace("(?P<n>", "", 1) and is_valid(text)),
    st.text("abAB .\n1éÉx", max_size=12),
)
@example("", "(?:^a|b)*$", "ba\n")
@example("", "(?:)*a", "a")
@example("(?i)", "[^a]b", "Ab")
@example("(?m)", "^$|\\Bx", "a\n\nb")
def test_what_python_finds_is_found_and_nothing_else(flags: str, expression: str, text: str) -> None:
    whole = flags + expression

    found = Automaton(whole).is_in(text)

    assert found == (re.search(whole, text) is not None)


@pytest.mark.parametrize(("expression", "kind"), [("ab", Backtracking), ("a+", Backtracking), ("a+b+", Automaton)])
def test_where_there_is_one_choice_python_searches_and_where_there_are_more_it_does_not(
    expression: str, kind: type
) -> None:
    assert type(bounded_regex._search(expression)) is kind


# Each would keep Python's search busy for longer than anybody lives.
@pytest.mark.parametrize(
    "expression",
    [
        "(a+)+$",
        "(a|aa)+$",
        ".*a.*a.*a.*a.*a.*b",
        "a*a*a*a*a*a*b",
        "(.*)(.*)(.*)(.*)(.*)[0-9]",
        "a?" * 200 + "a{200}b",
        "(?:a{1,20}){1,20}b",
        "((a*)*)*b",
    ],
)
def test_a_message_that_was_made_to_keep_a_search_busy_does_not(expression: str) -> None:
    rules = (Rule(pattern=expression), Rule(any=True))

    assert matching_rule(rules, failure("EXIT_NONZERO", "a" * (MESSAGE_CHARS_MAX - 1) + "!")) == 1


def steps(expression: str, text: str) -> int:
    """How many lines of the search are carried out, from making it to its end."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != bounded_regex.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        Automaton(expression).is_in(text)
    finally:
        sys.settrace(before)
    return count


# Each is made of so many parts that look and fork; in a text of x they begin anew at each character.
WORST = {
    r"(?:\Ba?){#}b": 4,
    r"(?:\B|a){#}b": 5,
    r"a?a?(?:\B){#}b": 1,
    r"(?:\B?){#}x": 2,
    r"(?:\b?\B?){#}b": 4,
    "(?:a?b?c?){#}d": 6,
    "(?:(?:a*)*){#}b": 6,
    "(?:^?$?){#}b": 4,
}


@pytest.mark.parametrize("expression", WORST)
@pytest.mark.parametrize("unit", ["x", "a", "x ", "a\n"])
def test_a_search_takes_steps_for_the_parts_of_the_expression_times_the_length_of_the_text(
    expression: str, unit: str
) -> None:
    places, chars = 120, 120
    whole = expression.replace("#", str(places // WORST[expression]))

    assert steps(whole, (unit * chars)[: chars - 1] + "!") < 5 * places * chars


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(?=a+)b|c", "'(?=' needs backtracking"),
        ("(?!a+)b|c", "'(?!' needs backtracking"),
        ("(?<=a)b+|c", "'(?<=' needs backtracking"),
        ("(?<!a)b+|c", "'(?<!' needs backtracking"),
        ("(?>a+)b|c", "'(?>' needs backtracking"),
        ("(a+|b) \\1", "'\\1' needs backtracking"),
        ("(?P<n>a+|b)(?P=n)", "'(?P=' needs backtracking"),
        # With one choice too: for each place, each length of what is repeated is compared as a whole.
        ("(a*)\\1b", "'\\1' needs backtracking"),
        ("(?P<n>a{2,})(?P=n)b", "'(?P=' needs backtracking"),
        ("(a+)?(?(1)b|c)", "'(?(' needs backtracking"),
        ("a++|b", "'++' is possessive"),
        ("(?x)a+ b+", "'(?x)' makes blanks meaningless"),
        ("(?x:a+ b+)", "'(?x:' makes blanks meaningless"),
        # Large in every way: by repeats, by repeats of nothing, by depth.
        ("(a{100}){100}", "it has more than 1,000 parts with repeats expanded"),
        ("(()*){4000000}", "it has more than 1,000 parts with repeats expanded"),
        ("(" * 101 + "a*b*" + ")" * 101, "its groups are nested more than 100 levels deep"),
    ],
)
def test_what_has_to_go_back_or_is_too_large_is_refused(expression: str, reason: str) -> None:
    assert is_valid(expression)

    with pytest.raises(NotSearchable) as refused:
        refuse_unsearchable(expression)

    assert str(refused.value) == reason


@pytest.mark.parametrize(
    "expression", ["license .* unavailable", "(?=a)b", "(a|b) \\1", "(a)\\1?", "a++b", "(?x) a b # c"]
)
def test_with_one_choice_all_of_pythons_dialect_is_there(expression: str) -> None:
    refuse_unsearchable(expression)

    assert is_found(expression, "license is unavailable, ab ab") == bool(
        re.search(expression, "license is unavailable, ab ab")
    )


def test_an_expression_of_a_run_that_began_before_is_found_as_it_was_then() -> None:
    assert is_found("(\\w+) \\1", "ab ab")
    assert is_found("(?=.*b)a+|c", "aab")
    assert not is_found("(?=.*b)a+|c", "aa")
