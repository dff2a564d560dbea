"""How much of what a step reports about itself is kept."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.classify import CODE_CHARS_MAX, DETAILS_BYTES_MAX, REPORTS_MAX, classify
from mulligan.core.model.failure import MESSAGE_CHARS_MAX, TRACE_CHARS_MAX, Failure
from mulligan.core.model.outcome import Outcome


def failed(**seen: Any) -> Failure:
    found, _ = classify(Outcome(**seen))
    assert found is not None
    return found


def reported(report: Any, **seen: Any) -> Failure:
    return failed(reported=(report,), **seen)


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_of_a_long_code_the_first_hundred_characters_are_kept() -> None:
    assert CODE_CHARS_MAX == 100
    assert reported({"code": "A" * 100 + "B"}).code == "A" * 100


def test_a_report_that_is_only_text_keeps_the_beginning_of_it() -> None:
    text = "a" * MESSAGE_CHARS_MAX + "b"

    assert reported(text).message == "a" * MESSAGE_CHARS_MAX


@pytest.mark.parametrize("padding", [0, 1])
def test_details_are_kept_up_to_their_bound_and_beyond_it_only_counted(padding: int) -> None:
    assert DETAILS_BYTES_MAX == 16 * 1024
    details = {"text": "x" * (DETAILS_BYTES_MAX - len('{"text":""}') + padding)}

    found = reported({"code": "QUOTA", "details": details})

    assert found.details == ({"dropped_bytes": DETAILS_BYTES_MAX + 1} if padding else details)


def test_of_a_trace_beside_a_reported_error_the_end_is_kept() -> None:
    trace = "a" + "b" * TRACE_CHARS_MAX

    assert reported({"code": "QUOTA"}, trace=trace).trace == "b" * TRACE_CHARS_MAX


@pytest.mark.parametrize("count", [REPORTS_MAX, REPORTS_MAX + 1])
def test_of_many_warnings_the_first_twenty_are_kept(count: int) -> None:
    found, warnings = classify(Outcome(reported=tuple({"code": f"W{i}", "severity": "warning"} for i in range(count))))

    assert found is None
    assert [warning.code for warning in warnings] == [f"W{i}" for i in range(20)]


# -- beside it -------------------------------------------------------------------------------------------------------


def test_a_step_that_reports_and_is_killed_for_its_memory_ran_out_of_it_and_its_word_is_the_cause() -> None:
    found = reported({"code": "QUOTA"}, is_out_of_memory=True, signal=9)

    assert (found.code, [cause.code for cause in found.cause]) == ("OUT_OF_MEMORY", ["QUOTA"])


def test_a_step_that_reports_and_is_killed_by_a_signal_says_which() -> None:
    found = reported({"code": "QUOTA"}, signal=9)

    assert (found.code, found.signal, found.exit_code) == ("QUOTA", 9, 137)


def test_errors_that_cannot_be_read_are_the_failure_of_a_step_that_ended_well() -> None:
    """What it wrote there may have been one."""
    found, warnings = classify(Outcome(reported=({"code": "SLOW", "severity": "warning"},), report_error="is no JSON"))

    assert found is not None
    assert (found.code, found.message) == ("OUTPUT_INVALID", "$MULLIGAN_ERROR is no JSON")
    assert [warning.code for warning in warnings] == ["SLOW"]


@pytest.mark.parametrize("code", [0, "", None, False, [], 1.5])
def test_a_code_that_is_none_is_an_exception(code: object) -> None:
    assert reported({"code": code, "message": "odd"}).code == "EXCEPTION"


def test_a_code_may_be_a_number() -> None:
    assert reported({"code": 507}).code == "507"


def test_an_attempt_of_which_only_the_exit_code_is_known_has_nothing_else_to_say() -> None:
    found = failed(exit_code=3)

    assert found == Failure(code="EXIT_NONZERO", message="exit code 3", exit_code=3)


@pytest.mark.parametrize(
    ("is_past_deadline", "message"),
    [(False, "it took longer than its timeout"), (True, "it took longer than its deadline")],
)
def test_what_took_too_long_says_whose_time_was_up(is_past_deadline: bool, message: str) -> None:
    assert failed(is_timed_out=True, is_past_deadline=is_past_deadline).message == message


@pytest.mark.parametrize(
    ("seen", "code"),
    [({"output_warning": "it is no JSON"}, "OUTPUT_TOO_LARGE"), ({"log_warning": "it is no JSON"}, "OUTPUT_MISSING")],
    ids=["output", "log"],
)
def test_what_it_gave_and_nobody_has_is_a_warning(seen: Any, code: str) -> None:
    found, warnings = classify(Outcome(**seen))

    assert found is None
    assert [(one.code, one.message, one.severity) for one in warnings] == [(code, "it is no JSON", "warning")]


# -- severity and whether it may be retried --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "severity", "retryable"),
    [
        # An error, said so, of a code that would be critical.
        ({"code": "SECURITY_VIOLATION", "severity": "error"}, "error", False),
        ({"code": "HTTP_4XX", "severity": "error"}, "error", False),
        ({"code": "TIMEOUT", "severity": "critical"}, "critical", True),
        # Codes of its own: what is critical is not tried again, unless it says so.
        ({"code": "QUOTA"}, "error", True),
        ({"code": "QUOTA", "severity": "error"}, "error", True),
        ({"code": "QUOTA", "severity": "critical"}, "critical", False),
        ({"code": "QUOTA", "severity": "critical", "retryable": True}, "critical", True),
        ({"code": "QUOTA", "retryable": False}, "error", False),
        # What is no severity, and no answer.
        ({"code": "QUOTA", "severity": "huge", "retryable": "no"}, "error", True),
    ],
    ids=str,
)
def test_a_step_says_how_bad_it_is_and_whether_to_try_again(report: Any, severity: str, retryable: bool) -> None:
    found = reported(report)

    assert (found.severity, found.retryable) == (severity, retryable)
