"""Searching, construct by construct: each means what it means in Python, and the limits are where we say they are."""

from __future__ import annotations

import re
from itertools import product

import pytest

from mulligan.core.deciding.bounded_regex import (
    DEPTH_MAX,
    PLACES_MAX,
    Automaton,
    Backtracking,
    NotSearchable,
    is_found,
    refuse_unsearchable,
)

# All texts of up to four of these: whatever a small expression can be wrong about is among them.
LETTERS = ["".join(chars) for size in range(5) for chars in product("ab", repeat=size)]
OTHERS = [
    "A",
    "AB",
    "aB",
    "x",
    "x{,",
    "]",
    "-",
    "|",
    ")",
    "a\nb",
    "\n",
    "a\n",
    "\na",
    "a b",
    " ",
    "1",
    "é",
    "É",
    "\\",
    "q7",
]

EXPRESSIONS = [
    # One after the other, either, nothing.
    *("ab", "a|b", "ab|ba", "|a", "a|", "a|b|ba", "", "()", "(a|b)(b|a)", "(a|ab)(b|ba)$", "(?:^(?:a|b|)$)"),
    # Repeats, greedy or not.
    *("^a*$", "^a+$", "^a?$", "^a*?b$", "^a+?b$", "^a??b$", "^(ab)*$", "^(ab)+$", "^(ab)?$", "^(a|b)*b$", "^(a*b)*$"),
    # Counted repeats.
    *("^a{2}$", "^a{0}$", "^a{1,2}$", "^a{,2}$", "^a{2,}$", "^a{,}$", "^(ab){2}$", "^(a|b){2,3}$", "^a{0,1}b$"),
    *("^a{1}(?:){2}$", "^(a{1,2}){1,2}$", "^a{2}?$", "^a{1,}?b$"),
    # What looks like a count, and is none.
    *("x{,$", "x{", "{|a", "a{b|b", "x\\{,$"),
    # Places.
    *("^", "$", "^$", "\\Aa", "b\\Z", "a$|^b", "\\bb", "\\Bb", "a\\b", "a\\B", "(?m)^b", "(?m)a$", "(?m)^$", "^a|b$"),
    # Sets and classes.
    *(
        "[ab][ab]$",
        "[^a]",
        "[]a]",
        "[^]a]",
        "[\\]]",
        "[a-b]+$",
        "[\\w]",
        "\\w\\W",
        "\\d",
        "\\D\\d",
        "\\s",
        "\\S+$",
        "[|)]",
    ),
    # Characters by their number or name.
    *(
        "\\x61",
        "\\u0061b",
        "\\U00000061",
        "\\141",
        "\\0141|b",
        "\\N{LATIN SMALL LETTER A}b",
        "\\\\",
        "\\|",
        "\\)",
        "\\.",
    ),
    # Groups, flags, comments.
    *("(a)(b)", "(?:a)b", "(?P<name>a)b", "(?i)a", "(?i)A|B", "(?i:A)b", "a(?i:b)", "(?i:a(?-i:B))", "(?s).b$", ".b$"),
    *("(?s:a.)b", "(?i)(?s)A.B", "a(?#|)b", "(?#c)a|b", "((a)|(b))+$", "(?i:a|(?:B))(?:b)", "(?is)A.B|q"),
    # Blanks, and what is beyond ASCII.
    *("a b", " $", "é", "(?i)é", "(?a:\\w)", "(?:(?u:\\w))$"),
]


@pytest.mark.parametrize("expression", dict.fromkeys(EXPRESSIONS))
def test_every_construct_means_what_it_means_in_python(expression: str) -> None:
    automaton, python = Automaton(expression), re.compile(expression)

    wrong = [text for text in [*LETTERS, *OTHERS] if automaton.is_in(text) != bool(python.search(text))]

    assert wrong == []


def test_one_search_may_be_asked_again_and_again() -> None:
    automaton = Automaton("^a*b$|x+")

    assert [automaton.is_in(text) for text in ("aab", "aa", "aab", "x", "")] == [True, False, True, True, False]


# -- limits ----------------------------------------------------------------------------------------------------------


def reason(expression: str) -> str:
    """Why it is refused; nothing if it is not."""
    try:
        refuse_unsearchable(expression)
    except NotSearchable as refused:
        return str(refused)
    return ""


TOO_LARGE = f"it has more than {PLACES_MAX:,} parts with repeats expanded"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        # A character is a part, a repeat written out as often as it is repeated.
        ("a?b?" + "c" * 990, ""),
        ("a?b?" + "c" * 1000, TOO_LARGE),
        ("a?(c{9}){110}", ""),
        ("a?(c{9}){112}", TOO_LARGE),
        # What takes no character counts as well: it has to be written out.
        ("a?(?:){1900}", ""),
        ("a?(?:){2100}", TOO_LARGE),
    ],
)
def test_an_expression_may_have_a_thousand_parts(expression: str, said: str) -> None:
    assert reason(expression) == said


def test_groups_may_nest_a_hundred_deep() -> None:
    deepest = "(" * DEPTH_MAX + "a*b*" + ")" * DEPTH_MAX

    assert (DEPTH_MAX, reason(deepest)) == (100, "")
    assert reason(f"({deepest})") == "its groups are nested more than 100 levels deep"
    # One beside the other is not nested.
    assert reason("(a*)" * 150) == ""


@pytest.mark.parametrize(
    ("expression", "is_refused"),
    [
        # One choice is Python's to make, whatever else is there.
        ("(?=a)b*", False),
        ("(?=a)b|c", False),
        # Two are too many to go back to.
        ("(?=a)b*c*", True),
        ("(?=a)b*|c", True),
        ("(?=a)b|c|d", True),
    ],
)
def test_with_more_than_one_choice_nothing_may_go_back(expression: str, is_refused: bool) -> None:
    assert bool(reason(expression)) == is_refused


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("a*b*+", "'*+' is possessive"),
        ("a*b?+", "'?+' is possessive"),
        ("a*b{2,3}+", "'{2,3}+' is possessive"),
        ("(a*)(b*)\\2", "'\\2' needs backtracking"),
        ("(?ix)a* b*", "'(?ix)' makes blanks meaningless"),
        ("(?i-x:a* b*)", "'(?i-x:' makes blanks meaningless"),
    ],
)
def test_what_is_refused_is_named(expression: str, said: str) -> None:
    assert reason(expression) == said


def test_an_octal_number_of_three_digits_is_a_character_and_no_reference() -> None:
    assert reason("a*b*\\141") == ""
    assert is_found("x*b*\\141", "a")


@pytest.mark.parametrize("expression", ["a", "a*", "(?=a)a"])
def test_where_there_is_nothing_to_choose_python_searches(expression: str) -> None:
    assert Backtracking(expression).is_in("ba")
    assert not Backtracking(expression + "z").is_in("ba")
