"""Whatever is in a file of JSON5 or KDL, it is read or refused: never anything else, and in no time."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mulligan import StepError
from mulligan.errors import LanguageError
from mulligan.formats import json5_text
from mulligan.formats.noetl.runtime.templates import excerpt, render_value
from mulligan.formats.torc import kdl
from mulligan.language.text.nodes import Refusal, Source, plain

JSON5_WORDS = ["{", "}", "[", "]", ",", ":", '"', "'", "\\", "\\u", "\\ud83d", "a", "0x", "1", ".", "e9", "-", "+"]
JSON5_WORDS += ["//", "/*", "*/", "\n", " ", "true", "NaN", "é", "\u2028", "$"]
KDL_WORDS = ["job", '"', '"""', "#", 'r#"', '"#', "{", "}", "(", ")", "=", ";", "\\", "\\u{", "/-", "/*", "*/", "//"]
KDL_WORDS += ["\n", " ", "1", "0x", "_", ".", "#true", "name", "command", "depends_on", "\u3000", "é"]


def survives(read: Any, text: str) -> None:
    try:
        read(Source(text, "w"))
    except Refusal as refused:
        assert refused.problem.render().startswith("error[language.")
    except LanguageError as refused:
        assert refused.problems


@given(st.lists(st.sampled_from(JSON5_WORDS), max_size=40).map("".join) | st.text(max_size=60))
@example("[\\")
@example("{\\u00")
def test_any_text_is_json5_or_refused(text: str) -> None:
    survives(json5_text.parse, text)


@given(st.lists(st.sampled_from(KDL_WORDS), max_size=40).map("".join) | st.text(max_size=60))
@example('a """\n\\')
@example("a \\")
@example("a /-")
@example('r#"')
def test_any_text_is_kdl_or_refused(text: str) -> None:
    survives(kdl.parse, text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES, st.booleans())
def test_what_json_writes_is_read_as_it_was(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)

    try:
        found = plain(json5_text.parse(Source(text, "w.json")))
    except Refusal as refused:
        # No program takes these, whoever writes them.
        assert refused.problem.code == "language.character"
    else:
        assert found == value or math.inf in _numbers(found)


def _numbers(value: Any) -> set[float]:
    if isinstance(value, dict | list):
        return set().union(*map(_numbers, value.values() if isinstance(value, dict) else value))
    return {abs(value)} if isinstance(value, float) else set()


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (json5_text.parse, "/*" + "*" * 100_000),
        (json5_text.parse, '["' + "\\" * 100_001),
        (json5_text.parse, "[" + "1," * 50_000),
        (json5_text.parse, " " * 100_000 + "x"),
        (kdl.parse, "/*" * 50_000),
        (kdl.parse, 'a "' + "\\ " * 50_000),
        (kdl.parse, "a " + "#" * 100_000),
        (kdl.parse, 'a """\n' + '""\\' * 30_000),
        (kdl.parse, "a " + "\\\n" * 50_000),
        (kdl.parse, "/-" * 50_000),
        (kdl.parse, "(" * 50_000),
    ],
)
def test_a_long_text_that_leads_nowhere_is_refused_at_once(read: Any, text: str) -> None:
    with pytest.raises((Refusal, LanguageError)):
        read(Source(text, "w"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ " + "(" * 1500 + "1" + ")" * 1500 + " }}", "this template is invalid: it is nested too deep"),
        ("{% if 1 %}" * 150 + "{% endif %}" * 150, "this template is invalid: it is nested too deep"),
        ("{{ " + "9" * 5000 + " }}", "this template is invalid: a number in it is too long"),
        ("{{ (9 ** 9999) ** 9999 }}", "the sandbox refused it: the number is too large"),
        ("{{ (9 ** 9999) * (9 ** 30000) }}", "the sandbox refused it: the exponent 30000 is too large"),
    ],
)
def test_a_template_that_asks_too_much_of_python_is_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(StepError) as refused:
        render_value(text, {})

    assert str(refused.value) == f"'{excerpt(text)}': {reason}"
