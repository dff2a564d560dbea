"""The items of a map: out of files and commands; and what a setup's commands leave in variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan import StepError
from mulligan.formats.prodigy.runtime.items import list_items
from mulligan.formats.prodigy.runtime.outputs import capture_variables


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_of_json_is_its_list() -> None:
    Path("items.json").write_text('[{"n": 1}, {"n": 2}]')

    assert list_items("items.json") == [{"n": 1}, {"n": 2}]


def test_another_file_is_its_lines_without_the_empty_ones() -> None:
    Path("my names.txt").write_text("a b\n\nc\n")

    assert list_items("my names.txt") == ["a b", "c"]


@pytest.mark.parametrize(("text", "found"), [("src/a b.rs\nsrc/c.rs\n", ["src/a b.rs", "src/c.rs"]), ("", [])])
def test_a_file_called_json_may_have_lines_as_in_their_readme(text: str, found: list[str]) -> None:
    Path("files.json").write_text(text)

    assert list_items("files.json") == found


def test_lines_for_a_json_path_are_a_failure_not_an_empty_map() -> None:
    Path("items").write_text('{"items": [1, 2\n')
    Path("items.json").write_text("error: no such thing\n")

    for input in ("items", "cat items", "items.json"):
        with pytest.raises(StepError, match=r"JSON"):
            list_items(input, json_path="$.items[*]")
    assert list_items("printf 'a\\nb\\n'", json_path="$[*]") == ["a", "b"]


def test_json_in_another_file_is_json() -> None:
    Path("items").write_text('{"all": [1, 2]}')

    assert list_items("items", json_path="$.all") == [1, 2]


def test_a_file_is_looked_for_where_the_run_was_started_too(tmp_path: Path) -> None:
    Path("worktree").mkdir()
    Path("items.json").write_text("[1]")

    assert list_items("items.json", origin=str(tmp_path)) == [1]


def test_an_object_is_one_item() -> None:
    Path("one.json").write_text('{"n": 1}')

    assert list_items("one.json") == [{"n": 1}]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("echo '[1, 2]'", [1, 2]),
        ("echo '{\"n\": 1}'", [{"n": 1}]),
        ("printf 'a\\nb c\\n'", ["a", "b c"]),
        ("true", []),
        ("echo a; echo to the log >&2", ["a"]),
    ],
)
def test_what_is_no_file_is_a_command_that_prints_them(command: str, found: list[Any]) -> None:
    assert list_items(command) == found


def test_items_are_found_filtered_sorted_and_told_apart_in_this_order() -> None:
    Path("x.json").write_text(
        '{"all": [{"n": 3, "k": "a"}, {"n": 1, "k": "b"}, {"n": 2, "k": "a"}, {"n": 0, "k": "c"}]}'
    )

    found = list_items("x.json", json_path="$.all[*]", filter="n > 0", sort_by="n", distinct="k")

    assert found == [{"n": 1, "k": "b"}, {"n": 2, "k": "a"}]


def test_a_command_that_fails_says_how() -> None:
    with pytest.raises(StepError) as caught:
        list_items("echo no such thing >&2; exit 3")

    said = "'echo no such thing >&2; exit 3' is not a file, and as a command it exited with 3: no such thing"
    assert (caught.value.code, caught.value.message) == ("INPUT_FAILED", said)


def test_a_file_that_should_be_json_and_is_not_says_so() -> None:
    Path("bad.json").write_text("[1,")

    with pytest.raises(StepError) as caught:
        list_items("bad.json")

    assert caught.value.message.startswith("'bad.json' is not JSON: ")
    assert caught.value.retryable is False


# -- what a setup leaves ---------------------------------------------------------------------------------------------

CAPTURED = [
    ("several\nlines", {}, "several\nlines"),
    ("version 1.2", {"pattern": r"version (\S+)"}, "1.2"),
    ("version 1.2", {"pattern": r"\d"}, "1"),
    ("nothing", {"pattern": "x", "default": "none"}, "none"),
    (None, {"default": 0}, 0),
    ('{"a": {"b": [1, 2]}}', {"json_path": "$.a.b[0]"}, 1),
    ('{"a": [1, 2]}', {"json_path": "$.a"}, [1, 2]),
    ("no json", {"json_path": "$.a", "default": None}, None),
    ({"a": 5}, {"json_path": "$.a"}, 5),
    ("one\ntwo", {"multiline": "join"}, "one two"),
    ("one\ntwo", {"multiline": "first_line"}, "one"),
    ("one\ntwo", {"multiline": "last_line"}, "two"),
    ("one\ntwo", {"multiline": "array"}, ["one", "two"]),
    ("", {"multiline": "first_line"}, ""),
    # Cut between characters, never inside one.
    ("äöü", {"max_size": 3}, "ä"),
]


@pytest.mark.parametrize(("output", "rule", "value"), CAPTURED)
def test_a_variable_is_taken_from_an_output(output: Any, rule: dict[str, Any], value: Any) -> None:
    assert capture_variables({"x": output}, {"x": {"command_index": 0, **rule}}) == {"x": value}


def test_a_variable_that_is_nowhere_to_be_found_fails() -> None:
    with pytest.raises(StepError) as caught:
        capture_variables({"x": "nothing"}, {"x": {"command_index": 2, "pattern": "y"}})

    assert caught.value.message == "'x' was not found in the output of command 2"
