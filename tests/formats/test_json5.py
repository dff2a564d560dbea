"""JSON5, and JSON where it is not YAML: what it means, where everything stands, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from mulligan import formats
from mulligan.formats.json5_text import parse, parse_json
from mulligan.language.text.nodes import Mapping, Refusal, Scalar, Source, plain


def value(text: str) -> Any:
    return plain(parse(Source(text, "w.json5")))


def refusal(text: str, file: str = "w.json5") -> str:
    """The whole text of the refusal."""
    with pytest.raises(Refusal) as refused:
        parse(Source(text, file))
    return refused.value.problem.render()


MEANINGS = [
    # names without quotes, in single ones, a comma at the end
    ("{name: 'x', $a_1: 2, \"b c\": [3,],}", {"name": "x", "$a_1": 2, "b c": [3]}),
    ("{\\u0061b: 1, größe: 2}", {"ab": 1, "größe": 2}),
    # comments
    ("// one\n[1, /* two\n lines */ 2] // end", [1, 2]),
    # numbers in every form
    ("[0x1F, +1, -2, .5, 5., 1e3, -0.5E-1]", [31, 1, -2, 0.5, 5.0, 1000.0, -0.05]),
    ("[9223372036854775807, -9223372036854775808]", [2**63 - 1, -(2**63)]),
    ("[Infinity, -Infinity]", [math.inf, -math.inf]),
    ("[true, false, null]", [True, False, None]),
    # escapes, and a text that goes on in the next line
    (r"""['\'\"\\\/\b\f\n\r\t\v\x41\u00e9']""", ["'\"\\/\b\f\n\r\t\vAé"]),
    ("['one \\\ntwo \\\r\nthree']", ["one two three"]),
    # a character written as two halves
    (r'["\ud83d\ude00!"]', ["😀!"]),
    ("[]", []),
    ("{}", {}),
    ("\ufeff 1\xa0", 1),
]


@pytest.mark.parametrize(("text", "meant"), MEANINGS)
def test_what_is_written_means_what_json5_says(text: str, meant: Any) -> None:
    assert value(text) == meant


def test_every_key_and_value_knows_where_it_stands() -> None:
    root = parse(Source("{\n  // jobs\n  jobs: ['build it'],\n}", "w.json5"))

    assert isinstance(root, Mapping)
    key, jobs = root.entries["jobs"]
    assert (key.line, key.column, key.end_column) == (2, 2, 6)
    job = jobs.items[0]  # type: ignore[union-attr]
    assert isinstance(job, Scalar)
    assert (job.line, job.column, job.end_column, job.style) == (2, 9, 19, "'")


REFUSALS = [
    ("", "error[language.empty]: w.json5:1:1: the file is empty\n  1 | \n    | ^ a workflow has at least 'steps:'"),
    ("// nothing", "error[language.empty]: w.json5:1:1: the file is empty\n"
     "  1 | // nothing\n    | ^ a workflow has at least 'steps:'"),
    ("[1,\n[2", "error[language.json]: w.json5:2:1: the list that starts here is not closed\n"
     "  2 | [2\n    | ^ add ']' or ','"),
    ("[", "error[language.json]: w.json5:1:1: the list that starts here is not closed\n"
     "  1 | [\n    | ^ add ']' or ','"),
    ("{a:", "error[language.json]: w.json5:1:1: the mapping that starts here is not closed\n"
     "  1 | {a:\n    | ^ add '}' or ','"),
    ("{a: 1", "error[language.json]: w.json5:1:1: the mapping that starts here is not closed\n"
     "  1 | {a: 1\n    | ^ add '}' or ','"),
    ("{a: 1 b: 2}", "error[language.json]: w.json5:1:7: a ',' or '}' is expected here\n"
     "  1 | {a: 1 b: 2}\n    |       ^"),
    ("{a 1}", "error[language.json]: w.json5:1:4: a ':' is missing after the key\n"
     "  1 | {a 1}\n    |    ^ write it as \"key\": value"),
    ("{a-b: 1}", "error[language.json]: w.json5:1:2: the key 'a-b' needs quotes\n"
     "  1 | {a-b: 1}\n    |  ^^^ write it as \"a-b\""),
    ("{,}", "error[language.json]: w.json5:1:2: a key is expected here\n  1 | {,}\n    |  ^"),
    ("[,]", "error[language.json]: w.json5:1:2: a value is expected here\n  1 | [,]\n    |  ^"),
    ("['a]", "error[language.json]: w.json5:1:2: the quotes that start here are not closed\n  1 | ['a]\n    |  ^"),
    ("['a\nb']", "error[language.json]: w.json5:1:2: the quotes that start here are not closed\n  1 | ['a\n    |  ^"),
    ("[build]", "error[language.json]: w.json5:1:2: 'build' is not a JSON value\n"
     "  1 | [build]\n    |  ^^^^^ write it as \"build\""),
    # an octal number of old, which nobody reads the same way
    ("[010]", "error[language.json]: w.json5:1:2: '010' is not a JSON value\n"
     "  1 | [010]\n    |  ^^^ write it as \"010\""),
    ("[1] [2]", "error[language.json]: w.json5:1:5: nothing is expected after the end of the document\n"
     "  1 | [1] [2]\n    |     ^"),
    ("[/* 1]", "error[language.json]: w.json5:1:2: the comment that starts here is not closed\n"
     "  1 | [/* 1]\n    |  ^ add '*/'"),
    (r"['\u12']", "error[language.json]: w.json5:1:3: the escape '\\u' is not complete\n"
     "  1 | ['\\u12']\n    |   ^^ write '\\\\' for a backslash"),
    (r"['\1']", "error[language.json]: w.json5:1:3: the escape '\\1' is unknown\n"
     "  1 | ['\\1']\n    |   ^^ write '\\\\' for a backslash"),
    (r"['\ud83d']", "error[language.character]: w.json5:1:2: the text contains the character U+D83D, "
     "which is not allowed\n  1 | ['\\ud83d']\n    |  ^^^^^^^^ remove it"),
    (r"['\0']", "error[language.character]: w.json5:1:2: the text contains the character U+0000, which is not allowed\n"
     "  1 | ['\\0']\n    |  ^^^^ remove it"),
    ("['\x01']", "error[language.character]: w.json5:1:3: the character U+0001 is not allowed in a text file\n"
     "  1 | ['\ufffd']\n    |   ^ remove it"),
    ("[123456789012345678901234567890]", "error[language.number]: w.json5:1:2: the number "
     "123456789012345678901234567890 does not fit into 64 bits\n"
     "  1 | [123456789012345678901234567890]\n    |  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ quote it to keep it as text"),
    ("[1e999]", "error[language.number]: w.json5:1:2: the number 1e999 does not fit into 64 bits\n"
     "  1 | [1e999]\n    |  ^^^^^ quote it to keep it as text"),
    ("{a: 1, 'a': 2}", "error[language.duplicate_key]: w.json5:1:8: 'a' appears twice: first in line 1\n"
     "  1 | {a: 1, 'a': 2}\n    |        ^^^ remove one of them"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSALS)
def test_what_cannot_be_read_is_refused_at_its_place(text: str, said: str) -> None:
    assert refusal(text) == said


def test_a_number_of_ten_thousand_digits_is_refused_and_costs_nothing() -> None:
    assert "does not fit into 64 bits" in refusal("[" + "9" * 10_000 + "]")


def test_a_file_that_is_nested_without_end_is_refused() -> None:
    said = refusal("[" * 100_000).partition("\n")[0]

    assert said == "error[language.too_deep]: w.json5:1:81: more than 80 lists and mappings inside each other"


def test_a_backslash_that_json5_forgets_is_warned_of() -> None:
    source = Source(r"['job_\d+']", "w.json5")

    found = parse(source)

    assert plain(found) == ["job_d+"]
    assert [warning.render() for warning in source.warnings] == [
        "warning[language.escape]: w.json5:1:7: '\\d' in JSON5 means 'd'\n"
        "  1 | ['job_\\d+']\n    |       ^^ write '\\\\d' for a backslash and 'd'"
    ]


def test_json_does_not_forget_one() -> None:
    assert refusal(r'["\d"]', "w.json") == (
        "error[language.json]: w.json:1:3: the escape '\\d' is unknown\n"
        "  1 | [\"\\d\"]\n    |   ^^ write '\\\\d' for a backslash and 'd'"
    )


@pytest.mark.parametrize("text", [r'{"a": "\ud83d\ude00"}', '{"a": "😀"}', r'{"a": "\uD83D\uDE00"}'])
def test_a_character_of_json_may_be_written_as_two_halves(text: str) -> None:
    assert plain(parse_json(Source(text, "w.json"))) == {"a": "😀"}


def test_json_with_comments_is_read_as_it_is_meant() -> None:
    assert plain(parse_json(Source('{\n  // one\n  "a": [1,],\n}', "w.json"))) == {"a": [1]}


def test_a_comma_that_json_lacks_is_missed_where_it_belongs() -> None:
    with pytest.raises(Refusal) as refused:
        parse_json(Source('{\n  "a": 1\n  "b": 2\n}', "w.json"))

    assert refused.value.problem.render() == (
        "error[language.json]: w.json:3:3: a ',' or '}' is expected here\n  3 |   \"b\": 2\n    |   ^"
    )


def test_yaml_in_a_file_of_json_is_refused_as_yaml() -> None:
    with pytest.raises(Refusal) as refused:
        parse_json(Source("a: [1\nb: 2", "w.json"))

    assert refused.value.problem.code == "language.yaml"


def test_a_workflow_of_ours_may_be_written_in_json5(tmp_path: Path) -> None:
    file = tmp_path / "greet.json5"
    file.write_text("{name: 'greet', steps: [{step: 'hi', shell: 'echo hi', /* no needs */}]}")

    workflow = formats.load(file)

    assert [step.name for step in workflow.steps] == ["hi"]
    assert workflow.origin == ""
