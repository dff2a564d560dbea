"""What workers run for checks and files of Prodigy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan import StepError
from mulligan.formats.prodigy.runtime.outputs import judge_completion, run_checks, write_file

PASSED: list[tuple[Any, dict[str, Any]]] = [
    # a result that is not JSON has passed: its command did not fail
    ("all is well", {}),
    ("", {}),
    ("[1, 2]", {}),
    ('{"completion_percentage": 100}', {}),
    ('{"completion_percentage": 90}', {"threshold": 90}),
    ('{"completion": 95.5}', {"threshold": 95}),
    ('{"status": "complete"}', {}),
    ("{}", {}),
    # as agents hand over JSON
    ('It is done:\n```json\n{"completion_percentage": 100}\n```\nGood bye.', {}),
    ('{"n": 1}', {"expected_schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}),
]


@pytest.mark.parametrize(("output", "options"), PASSED)
def test_work_that_is_complete_enough_passes(output: Any, options: dict[str, Any]) -> None:
    judge_completion(output, **options)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (
        '{"completion_percentage": 40, "missing": ["tests", "docs"]}',
        {},
        "the work is 40 % complete, but 100 % are required; missing: tests, docs",
    ),
    ('{"status": "incomplete"}', {"threshold": 50}, "the work is 0 % complete, but 50 % are required"),
    ('{"missing": "docs"}', {}, "the work is 0 % complete, but 100 % are required; missing: docs"),
    ("x", {"result_file": "nowhere.json"}, "the check did not write 'nowhere.json'"),
    (
        "x",
        {"expected_schema": {"type": "object"}},
        "the result of the check is not of type object, which 'expected_schema' requires",
    ),
    (
        '{"a": [1]}',
        {"expected_schema": {"properties": {"a": {"items": {"type": "string"}}}}},
        "an entry of 'a' in the result of the check is not of type string, which 'expected_schema' requires",
    ),
    (
        "{}",
        {"expected_schema": {"required": ["n"]}},
        "the result of the check has no 'n', which 'expected_schema' requires",
    ),
    (
        '{"n": true}',
        {"expected_schema": {"properties": {"n": {"type": "number"}}}},
        "'n' in the result of the check is not of type number, which 'expected_schema' requires",
    ),
]


@pytest.mark.parametrize(("output", "options", "said"), REFUSED)
def test_work_that_is_not_complete_is_a_failure_that_says_so(output: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(StepError) as caught:
        judge_completion(output, **options)

    assert caught.value.code == "INCOMPLETE"
    assert caught.value.message == said


def test_what_is_missing_is_told_in_the_details() -> None:
    gaps = {"docs": {"description": "no page", "severity": "low"}}

    with pytest.raises(StepError) as caught:
        judge_completion({"completion_percentage": 12.5, "status": "incomplete", "missing": ["a", "b"], "gaps": gaps})

    assert caught.value.details == {"completion": 12.5, "status": "incomplete", "missing": "a, b", "gaps": gaps}


def test_a_result_that_is_a_file_is_read_there(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"completion_percentage": 100}')

    assert judge_completion("no JSON", result_file=str(path)) == {"completion_percentage": 100}


def test_a_result_file_that_is_no_json_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("{")

    with pytest.raises(StepError, match="wrote invalid JSON"):
        judge_completion("", result_file=str(path))


def test_checks_say_what_is_wrong_with_those_that_did_not_pass() -> None:
    checks = [{"command": "echo 3 passed", "expect_output": r"\d passed"}, {"command": "exit 2"}]

    assert run_checks(checks, 1) == ["'exit 2' exited with 2, expected 0"]


def test_too_few_checks_are_a_failure() -> None:
    checks = [{"command": "echo none", "expect_output": r"\d passed"}, {"command": "exit 2", "expect_exit_code": 2}]

    with pytest.raises(StepError) as caught:
        run_checks(checks, 2)

    assert (
        caught.value.message
        == r"1 of 2 checks passed, 2 required: the output of 'echo none' does not match '\d passed'"
    )


# -- files -----------------------------------------------------------------------------------------------------------

WRITTEN = [
    ("text", "as it is\n", "as it is\n"),
    ("json", '{"b":1,"a":"é"}', '{\n  "b": 1,\n  "a": "é"\n}\n'),
    ("yaml", "{b: 1, a: [x]}", "b: 1\na:\n- x\n"),
    ("text", {"a": 1}, '{"a": 1}'),
]


@pytest.mark.parametrize(("format", "content", "written"), WRITTEN)
def test_a_file_is_written_in_its_format(tmp_path: Path, format: str, content: Any, written: str) -> None:
    path = tmp_path / "a"

    assert write_file(str(path), content, format) == str(path)
    assert path.read_text() == written
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("format", ["json", "yaml"])
def test_what_is_not_in_its_format_leaves_the_file_as_it_was(tmp_path: Path, format: str) -> None:
    path = tmp_path / "a"
    path.write_text("before")

    with pytest.raises(StepError, match=f"is not {format.upper()}"):
        write_file(str(path), "{a: [", format)

    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_is_missing_is_made_only_where_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a"

    with pytest.raises(StepError) as caught:
        write_file(str(path), "x")
    write_file(str(path), "x", create_dirs=True)

    assert caught.value.message == f"'{path.parent}' is not a folder: write 'create_dirs: true' to create it"
    assert path.read_text() == "x"


def test_a_path_that_leads_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepError) as caught:
        write_file("../a", "x")

    assert (caught.value.message, caught.value.retryable) == ("'../a' contains '..'", False)


def test_where_it_cannot_be_written_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(OSError):
        write_file(str(tmp_path / "a"), "x")

    assert [each.name for each in tmp_path.iterdir()] == ["a"]
