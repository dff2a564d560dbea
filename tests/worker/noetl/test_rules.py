"""`spec.policy.rules`: of a single tool, whose retries are the step's; and of a pipeline, within one attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .asking import envelope, python, reported, result, ruled, when

BROKEN = python("raise ConnectionError('not yet')")
ALWAYS = "{{ output.status == 'error' }}"


def attempt(monkeypatch: pytest.MonkeyPatch, tries: int) -> None:
    """Some attempts of this visit have failed already."""
    monkeypatch.setenv("MULLIGAN_RETRY", str(tries))


# -- a single tool


@pytest.mark.parametrize(
    ("then", "delays"),
    [
        ({"backoff": "none", "delay": 2}, [2, 2, 2]),
        ({"backoff": "fixed", "delay": 2}, [2, 2, 2]),
        ({"backoff": "linear", "delay": 2}, [2, 4, 6]),
        ({"backoff": "exponential", "delay": 2}, [2, 4, 8]),
        ({"backoff": "exponential", "delay": 2, "factor": 3, "max_delay": 7}, [2, 6, 7]),
        ({"delay": "500ms"}, [0.5, 0.5, 0.5]),
        ({"delay": "{{ workload.pause }}"}, [1.5, 1.5, 1.5]),
        ({}, [0, 0, 0]),
    ],
)
def test_a_retry_is_asked_of_the_step_with_the_delay_of_its_rule(
    monkeypatch: pytest.MonkeyPatch, then: dict[str, Any], delays: list[float]
) -> None:
    tool = ruled(BROKEN, when(ALWAYS, "retry", attempts=4, **then))

    found = []
    for tries in range(3):
        attempt(monkeypatch, tries)
        report = reported(tool=tool, workload={"pause": 1.5})
        assert (report["code"], report["message"]) == ("EXCEPTION", "ConnectionError: not yet")
        assert report["retryable"] is True
        found.append(report["details"]["retry_after"])

    assert found == delays


def test_attempts_count_all_calls_and_the_last_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt(monkeypatch, 2)

    report = reported(tool=ruled(BROKEN, when(ALWAYS, "retry", attempts=3, delay=5)))

    assert report["retryable"] is False
    assert "retry_after" not in report["details"]


@pytest.mark.parametrize(
    "rules",
    [
        (when(ALWAYS, "fail"),),
        # as it was called before
        (when("{{ outcome.status == 'error' and outcome.error.retryable }}", "fail"), when(ALWAYS, "retry")),
        (when("{{ output.error.kind == 'auth' }}", "retry"),),
        ({"else": {"then": {"do": "fail"}}},),
        # about an answer that there was none of
        (when("{{ output.http.status >= 500 }}", "retry"), when("{{ response.data.x }}", "continue")),
    ],
)
def test_what_no_rule_repeats_nobody_repeats(rules: tuple[dict[str, Any], ...]) -> None:
    assert reported(tool=ruled(BROKEN, *rules))["retryable"] is False


def test_without_rules_a_failure_is_what_it_is() -> None:
    assert "retryable" not in reported(tool=BROKEN)


def test_a_failure_may_be_passed_over_and_is_the_result() -> None:
    rule = when(
        "{{ output.error.exception_type == 'ConnectionError' }}", "continue", set={"ctx.seen": "{{ error.kind }}"}
    )

    found = envelope(name="a", tool=ruled(BROKEN, rule), next={"arcs": [{"step": "b"}]})

    assert found["result"]["status"] == "error"
    assert found["result"]["error"]["message"] == "ConnectionError: not yet"
    assert (found["ctx"], found["next"], found["status"]) == ({"ctx.seen": [1, "connection", "a", 0]}, ["b"], "ok")


def test_what_went_well_may_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = ruled(
        python("result = {'state': 'pending'}"),
        when("{{ output.data.state == 'pending' }}", "retry", attempts=2, delay=9),
    )

    first = reported(name="poll", tool=tool)
    attempt(monkeypatch, 1)
    last = reported(name="poll", tool=tool)

    message = "the rules of 'poll' do not accept its result"
    assert first == {
        "code": "VALIDATION_FAILED",
        "message": message,
        "retryable": True,
        "details": {"retry_after": 9.0},
    }
    assert last == {"code": "VALIDATION_FAILED", "message": message, "retryable": False}


def test_the_number_of_the_attempt_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt(monkeypatch, 2)

    assert result(tool=python("result = n", args={"n": "{{ _attempt }}"})) == 3


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ({"do": "explode"}, "'do: explode' of a rule is unknown: use one of continue, retry, break, jump, fail"),
        ({"do": "retry", "delay": "soon"}, "'soon' is not a delay such as 5 or '500ms'"),
        ({"do": "retry", "delay": -1}, "'-1' is not a delay such as 5 or '500ms'"),
        ({"do": "retry", "attempts": "many"}, "'attempts' of a rule is 'many', a number is expected"),
        ({"do": "jump", "to": "nowhere"}, "a rule jumps to 'nowhere', which is not a task of the pipeline"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(then: dict[str, Any], message: str) -> None:
    report = reported(tool=ruled(python("result = 1"), {"when": True, "then": then}))

    assert (report["code"], report["message"], report["retryable"]) == ("INPUT_INVALID", message, False)


def test_a_condition_about_nothing_that_there_is_fails_the_step() -> None:
    report = reported(tool=ruled(BROKEN, when("{{ outptu.status == 'error' }}", "continue")))

    assert report["code"] == "EXPRESSION_FAILED"
    assert report["message"] == "'{{ outptu.status == 'error' }}': 'outptu' is not defined"


# -- pipelines


def counting(path: Path, fails: int) -> dict[str, Any]:
    """A tool that fails so many times, and counts its calls in a file."""
    code = f"""
        with open({str(path)!r}, 'a+') as file:
            file.write('x')
            file.seek(0)
            calls = len(file.read())
        if calls <= {fails}:
            raise ConnectionError(str(calls))
        result = {{'calls': calls}}
    """
    return python("\n".join(line[8:] for line in code.splitlines()))


def test_tools_of_a_pipeline_read_those_before_them() -> None:
    tools = [
        python("result = {'v': 1}", name="first"),
        python("result = a + b", args={"a": "{{ _prev.v }}", "b": "{{ first.v }}"}),
        python("result = {'all': a, 'task': t}", args={"a": "{{ results.task_1 + 1 }}", "t": "{{ _task }}"}),
    ]

    found = result(tool=tools)

    assert found == {
        "all": 3,
        "task": "task_2",
        "results": {"first": {"v": 1}, "task_1": 2, "task_2": {"all": 3, "task": "task_2"}},
    }


def test_a_retry_in_a_pipeline_is_within_the_attempt(tmp_path: Path) -> None:
    rule = when(ALWAYS, "retry", attempts=3, set={"ctx.tries": "{{ _attempt }}"})

    found = envelope(name="p", tool=[ruled({**counting(tmp_path / "calls", 2), "name": "call"}, rule)])

    assert found["result"]["calls"] == 3
    assert found["ctx"]["ctx.tries"][1] == 2


def test_a_retry_in_a_pipeline_ends_with_its_attempts(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    report = reported(tool=[ruled(counting(calls, 9), when(ALWAYS, "retry", attempts=3))])

    assert report["message"] == "ConnectionError: 3"
    assert calls.read_text() == "xxx"


def test_a_single_tool_whose_retry_sets_something_is_retried_in_place(tmp_path: Path) -> None:
    rule = when(ALWAYS, "retry", attempts=3, set={"ctx.tries": "{{ _attempt }}"})

    assert result(name="s", tool=ruled(counting(tmp_path / "calls", 2), rule))["calls"] == 3


def test_what_is_target_skipped_leaves_the_last_success_where_it_was() -> None:
    tools = [
        python("result = {'v': 1}"),
        ruled(BROKEN, {"else": {"then": {"do": "continue"}}}),
        python("result = {'v': v + 1}", args={"v": "{{ _prev.v }}"}),
    ]

    found = result(tool=tools)

    assert found["v"] == 2
    assert found["results"]["task_1"]["error"]["kind"] == "connection"


def test_a_failure_without_a_rule_ends_the_pipeline(tmp_path: Path) -> None:
    report = reported(tool=[BROKEN, counting(tmp_path / "calls", 0)])

    assert report["message"] == "ConnectionError: not yet"
    assert not (tmp_path / "calls").exists()


def test_a_pipeline_may_be_left_early(tmp_path: Path) -> None:
    rule = when("{{ output.data.v == 1 }}", "break")

    found = envelope(tool=[ruled(python("result = {'v': 1}", name="a"), rule), counting(tmp_path / "calls", 0)])

    assert (found["result"]["status"], found["result"]["v"], found["status"]) == ("break", 1, "ok")
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("to", ["page", "previous", "@previous"])
def test_pages_are_walked_by_jumping_back(to: str) -> None:
    page = python("result = {'n': n, 'more': n < 3}", name="page", args={"n": "{{ iter.n | default(1) }}"})
    rules = [when("{{ _prev.more }}", "jump", to=to, set={"iter.n": "{{ _prev.n + 1 }}", "ctx.pages": "{{ _prev.n }}"})]
    keep = ruled(python("result = _p", name="keep", args={"_p": "{{ _prev }}"}), *rules)

    found = envelope(name="walk", tool=[page, keep])

    assert (found["result"]["n"], found["ctx"]["ctx.pages"][1]) == (3, 2)


def test_a_pipeline_that_goes_in_a_circle_ends() -> None:
    report = reported(tool=[ruled({"kind": "noop", "name": "a"}, {"else": {"then": {"do": "jump", "to": "a"}}})])

    assert report["message"] == "the pipeline made 10000 calls and did not end"


def test_from_the_first_task_nothing_leads_to_the_one_before() -> None:
    report = reported(tool=[ruled({"kind": "noop", "name": "a"}, when("{{ true }}", "jump", to="prev"))])

    assert report["message"] == "a rule jumps to 'prev', which is not a task of the pipeline"
