"""Fakes as people say them: of each kind of step, in a file and on a command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mulligan.core.deciding.fakes import FakeEnd
from mulligan.errors import InputInvalid, LanguageError, UnknownStep
from mulligan.language.readers.fakes import load_fakes, parse_fakes, read_fakes

from .reading import workflow

FLOW = workflow("""
    steps:
      - {step: command, shell: make}
      - {step: function, python: {call: 'm:main'}}
      - {step: request, http: {url: https://example.invalid, method: POST}}
      - {step: picky, http: {url: https://example.invalid, expect: [202]}}
      - {step: query, sql: {connection: 'sqlite://db', query: select 1}}
      - {step: counted, sql: {connection: 'sqlite://db', query: select 1, rows: none}}
      - {step: robot, agent: hello}
      - {step: "size_{n}", matrix: {n: [1, 2]}, shell: make}
      - {step: judged, shell: make, triage: {by: agent, agent: claude}}
""")


def end(step: str, said: Any) -> FakeEnd:
    [found] = read_fakes(FLOW, {step: said})[step]
    return found


def failed(step: str, said: Any) -> tuple[str, str]:
    found = end(step, said).failure
    assert found is not None
    return found.code, found.message


@pytest.mark.parametrize(
    ("step", "said", "output"),
    [
        ("command", {"output": [1]}, [1]),
        ("function", {"returns": {"n": 1}}, {"n": 1}),
        ("function", {"output": 1}, 1),
        ("request", {"status": 201, "body": [1]}, {"status": 201, "headers": {}, "body": [1]}),
        ("request", {"body": "x", "headers": {"X-A": 1}}, {"status": 200, "headers": {"x-a": "1"}, "body": "x"}),
        ("picky", {"status": 202}, {"status": 202, "headers": {}, "body": None}),
        ("query", {"rows": [{"n": 1}]}, [{"n": 1}]),
        ("query", {"rowcount": 3}, {"rowcount": 3}),
        ("robot", {"output": "yes"}, {"content": "yes", "decision": None, "tokens": None}),
        ("robot", {"output": {"decision": "approved"}}, {"content": "", "decision": "approved", "tokens": None}),
    ],
)
def test_a_step_of_each_kind_gives_what_a_real_one_would(step: str, said: Any, output: Any) -> None:
    assert end(step, said) == FakeEnd(output)


@pytest.mark.parametrize(
    ("step", "said", "code", "message"),
    [
        ("command", {"fail": "EXIT_NONZERO", "exit_code": 11}, "EXIT_NONZERO", "exit code 11 (faked)"),
        ("command", {"fail": "QUOTA", "message": "no room"}, "QUOTA", "no room"),
        ("function", {"raises": "KeyError: 'n'"}, "EXCEPTION", "KeyError: 'n'"),
        (
            "function",
            {"raises": "builtins.ConnectionResetError: by peer"},
            "CONNECTION",
            "ConnectionResetError: by peer",
        ),
        ("function", {"raises": PermissionError("no")}, "PERMISSION", "PermissionError: no"),
        ("function", {"raises": "httpx.ReadTimeout"}, "EXCEPTION", "ReadTimeout"),
        ("function", {"raises": "it broke: badly"}, "EXCEPTION", "it broke: badly"),
        ("request", {"status": 503, "body": {"a": 1}}, "HTTP_5XX", 'POST (faked): answered 503: {"a": 1}'),
        ("request", {"status": 404}, "HTTP_4XX", "POST (faked): answered 404"),
        ("request", {"status": 429}, "HTTP_429", "POST (faked): answered 429"),
        ("picky", {"status": 200}, "VALIDATION_FAILED", "GET (faked): answered 200"),
        ("query", {"fail": "CONNECTION"}, "CONNECTION", "CONNECTION (faked)"),
    ],
)
def test_a_step_of_each_kind_fails_as_a_real_one_would(step: str, said: Any, code: str, message: str) -> None:
    assert failed(step, said) == (code, message)


@pytest.mark.parametrize(
    ("raised", "classes"),
    [
        ("ConnectionResetError: by peer", ("ConnectionResetError", "ConnectionError", "OSError", "Exception")),
        (
            json.JSONDecodeError("no", "", 0),
            ("json.decoder.JSONDecodeError", "ValueError", "Exception"),
        ),
        ("httpx.ReadTimeout: slow", ("httpx.ReadTimeout", "Exception")),
        ("it broke", ()),
    ],
)
def test_a_faked_exception_has_a_class_that_rules_can_name(raised: Any, classes: tuple[str, ...]) -> None:
    found = end("function", {"raises": raised}).failure

    assert found is not None
    assert found.exceptions == classes


def test_what_a_server_asks_for_is_kept() -> None:
    found = end("request", {"status": 429, "headers": {"Retry-After": "30"}}).failure

    assert found is not None
    assert found.details == {"status": 429, "retry_after": 30.0}


def test_a_failure_may_be_made_retryable_or_not() -> None:
    found = end("command", {"fail": "EXIT_NONZERO", "retryable": False}).failure

    assert found is not None
    assert (found.is_fatal, found.exit_code) == (True, 1)


def test_a_list_is_one_end_after_the_other() -> None:
    assert [one.output for one in read_fakes(FLOW, {"command": [{"output": 1}, {"output": 2}]})["command"]] == [1, 2]


def test_the_name_of_a_matrix_stands_for_all_its_steps() -> None:
    assert sorted(read_fakes(FLOW, {"size": {"output": 1}})) == ["size_1", "size_2"]


@pytest.mark.parametrize(
    ("step", "said", "problem"),
    [
        ("command", 3, "is 3, a mapping is expected"),
        ("command", {}, "is {}"),
        ("command", [], "is an empty list"),
        ("command", {"status": 200}, 'is {"status": 200}'),
        ("command", {"output": 1, "fail": "TIMEOUT"}, "has 'fail' next to 'output'"),
        ("command", {"fail": "timeout"}, 'fails with "timeout", and a code such as TIMEOUT is expected'),
        ("command", {"fail": "EXIT_NONZERO", "exit_code": "1"}, 'has the exit_code "1", and a number is expected'),
        ("request", {"status": "ok"}, 'answers "ok", and a status such as 200 is expected'),
        ("request", {"status": 999}, "answers 999, and a status such as 200 is expected"),
        ("request", {"headers": [1]}, "has the headers [1], and a mapping is expected"),
        ("query", {"rows": 3}, "gives 3, and rows such as [{n: 1}] are expected"),
        ("query", {"rowcount": "3"}, 'has changed "3" rows, and a number is expected'),
    ],
)
def test_a_fake_that_makes_no_sense_is_refused(step: str, said: Any, problem: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        read_fakes(FLOW, {step: said})

    assert caught.value.message == f"the fake of step '{step}' {problem}"


def test_a_step_that_is_not_there_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownStep) as caught:
        read_fakes(FLOW, {"comand": {"output": 1}})

    assert caught.value.hint == "did you mean 'command'?"


# -- on a command line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ('command={"rows": 3}', {"output": {"rows": 3}}),
        ("command=3", {"output": 3}),
        ("command=EXIT_NONZERO:11", {"fail": "EXIT_NONZERO", "exit_code": 11}),
        ("command=SIGNALED:9", {"fail": "SIGNALED", "signal": 9}),
        ("command=TIMEOUT", {"fail": "TIMEOUT"}),
        ("command=QUOTA:none left: today", {"fail": "QUOTA", "message": "none left: today"}),
        ('request={"n": 1}', {"status": 200, "body": {"n": 1}}),
        ('request={"status": 503}', {"status": 503}),
        ('query=[{"n": 1}]', {"rows": [{"n": 1}]}),
        ('query={"rowcount": 2}', {"rowcount": 2}),
        ('function={"raises": "ValueError: no"}', {"raises": "ValueError: no"}),
        ('function={"raised": 1}', {"output": {"raised": 1}}),
    ],
)
def test_a_word_says_how_a_step_ends(word: str, said: Any) -> None:
    assert parse_fakes(FLOW, [word]) == {word.partition("=")[0]: said}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["command"], "'command' is not a fake"),
        (["=3"], "'=3' is not a fake"),
        (["command=1", "command=2"], "step 'command' is faked twice"),
        (
            ["command=hello"],
            "the fake of step 'command' is 'hello', which is neither JSON nor an error code",
        ),
        (["command=TIMEOUTS"], "no failure has the code 'TIMEOUTS'"),
    ],
)
def test_a_word_that_is_no_fake_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        parse_fakes(FLOW, words)

    assert caught.value.message == message


# -- in a file -------------------------------------------------------------------------------------------------------


def test_a_file_says_it_of_several_steps(tmp_path: Path) -> None:
    (tmp_path / "fakes.yaml").write_text("command: {output: 1}\nquery: [{fail: CONNECTION}, {rows: []}]\n")

    found = load_fakes(tmp_path / "fakes.yaml")

    assert found == {"command": {"output": 1}, "query": [{"fail": "CONNECTION"}, {"rows": []}]}


def test_a_file_that_is_no_mapping_is_refused_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "fakes.yaml").write_text("- command\n")

    with pytest.raises(LanguageError, match="a mapping from steps to outcomes is expected"):
        load_fakes(tmp_path / "fakes.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="no such file or directory"):
        load_fakes(tmp_path / "none.yaml")


def test_an_empty_file_of_fakes_is_refused_with_an_example(tmp_path: Path) -> None:
    (tmp_path / "fakes.yaml").write_text("")

    with pytest.raises(LanguageError) as caught:
        load_fakes(tmp_path / "fakes.yaml")

    assert "a file of fakes maps steps to outcomes" in caught.value.problems[0].hint


def test_the_triager_of_a_step_is_faked_by_its_answer_or_its_failure() -> None:
    answer = {"verdict": "retry", "confidence": 0.9, "reason": "flaky"}

    found = read_fakes(FLOW, {"judged.triager": [{"output": answer}, {"fail": "TIMEOUT"}]})["judged.triager"]

    assert found[0].output["json"] == answer
    assert found[1].failure is not None and found[1].failure.code == "TIMEOUT"
    assert parse_fakes(FLOW, ['judged.triager={"verdict": "fail"}']) == {
        "judged.triager": {"output": {"verdict": "fail"}}
    }


@pytest.mark.parametrize("name", ["command.triager", "judged.handler", "nobody.triager"])
def test_what_is_no_triager_cannot_be_faked_as_one(name: str) -> None:
    with pytest.raises(UnknownStep):
        read_fakes(FLOW, {name: {"output": {}}})
