"""Rung 0: the outcome of an attempt becomes a failure with the right code, or none."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.deciding.classify import classify, failure_of_program
from mulligan.core.model.failure import (
    CODES,
    EXCEPTION_CHARS_MAX,
    EXCEPTIONS_MAX,
    RETRYABLE,
    SEVERITY,
    TRACE_CHARS_MAX,
    Failure,
    failure,
)
from mulligan.core.model.outcome import Outcome
from mulligan.testing.history import T0, History, retry, step, workflow

RETRIED = (
    "EXIT_NONZERO SIGNALED EXCEPTION CONNECTION HTTP_5XX HTTP_429 TIMEOUT OUT_OF_MEMORY OUTPUT_MISSING OUTPUT_INVALID "
    "VALIDATION_FAILED CHILD_FAILED ITEMS_FAILED NO_CAPACITY REQUIREMENTS_FAILED TOOL_FAILED"
).split()
NOT_RETRIED = (
    "HTTP_4XX PERMISSION INPUT_INVALID EXPRESSION_FAILED APPROVAL_REFUSED APPROVAL_EXPIRED NO_ROUTE LOOP_LIMIT "
    "CIRCUIT_OPEN BUDGET_EXCEEDED TURN_LIMIT OUTPUT_TOO_LARGE NONDETERMINISTIC UNAWAITED"
).split()
CRITICAL = "SECURITY_VIOLATION RUN_TIMEOUT INTERNAL".split()


def failure_of(**seen: object) -> Failure:
    found, _ = classify(Outcome(**seen))
    assert found is not None
    return found


# -- exceptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "code", "is_fatal"),
    [
        (("ConnectionResetError", "ConnectionError", "OSError", "Exception"), "CONNECTION", False),
        (("TimeoutError", "OSError", "Exception"), "TIMEOUT", False),
        (("numpy._core._exceptions._ArrayMemoryError", "MemoryError", "Exception"), "OUT_OF_MEMORY", False),
        (("PermissionError", "OSError", "Exception"), "PERMISSION", True),
        # A class of that name which is not Python's own.
        (("requests.exceptions.ConnectionError", "OSError", "Exception"), "EXCEPTION", False),
        (("KeyError", "LookupError", "Exception"), "EXCEPTION", False),
        ((), "EXCEPTION", False),
    ],
)
def test_an_exception_has_the_code_of_its_class(classes: tuple[str, ...], code: str, is_fatal: bool) -> None:
    found = failure_of(code="EXCEPTION", exit_code=None, message="E: no", exceptions=classes)

    assert (found.code, found.is_fatal, found.exceptions, found.is_raised) == (code, is_fatal, classes, True)


def test_a_step_error_keeps_the_code_that_it_says_whatever_its_class() -> None:
    classes = ("sales.Refused", "mulligan.StepError", "ConnectionError", "Exception")

    found = failure_of(exit_code=None, reported=({"code": "QUOTA", "message": "no"},), exceptions=classes)

    assert (found.code, found.exceptions, found.is_raised) == ("QUOTA", classes, False)


def test_the_names_of_classes_are_bounded() -> None:
    found = failure_of(code="EXCEPTION", exit_code=None, exceptions=("a" * 1000 + "\0", *map(str, range(1000))))

    assert (len(found.exceptions), max(map(len, found.exceptions))) == (EXCEPTIONS_MAX, EXCEPTION_CHARS_MAX)


def test_what_the_process_of_a_program_says_keeps_its_classes_and_is_bounded_too() -> None:
    found = failure_of_program(failure("CONNECTION", "no", exceptions=("ConnectionError", *map(str, range(1000)))))

    assert (found.code, found.exceptions[0], len(found.exceptions)) == ("CONNECTION", "ConnectionError", EXCEPTIONS_MAX)


def test_a_failure_of_an_older_log_has_no_classes() -> None:
    found = msgspec.json.decode(b'{"code":"EXCEPTION","message":"KeyError: 1"}', type=Failure)

    assert (found.exceptions, found.is_raised) == ((), True)


# -- the table of codes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", RETRIED)
def test_a_plain_failure_is_an_error_that_any_rule_may_retry(code: str) -> None:
    found = failure(code)

    assert (found.severity, found.retryable, found.is_fatal) == ("error", True, False)


@pytest.mark.parametrize("code", NOT_RETRIED)
def test_a_failure_that_would_only_repeat_itself_is_an_error_and_fatal(code: str) -> None:
    found = failure(code)

    assert (found.severity, found.retryable, found.is_fatal) == ("error", False, True)


@pytest.mark.parametrize("code", CRITICAL)
def test_a_failure_that_must_not_be_tried_again_is_critical_and_fatal(code: str) -> None:
    """NL2SQL: fatal codes and critical severity are never retried."""
    found = failure(code)

    assert (found.severity, found.retryable, found.is_fatal) == ("critical", False, True)


@pytest.mark.parametrize("code", ["WORKER_LOST", "INTERRUPTED", "CANCELLED"])
def test_the_engines_own_codes_are_no_reason_to_give_up(code: str) -> None:
    assert not failure(code).is_fatal


def test_the_table_names_every_code_once_with_both_of_its_properties() -> None:
    engines_own = {"WORKER_LOST", "INTERRUPTED", "CANCELLED", "HANDLER_FAILED", "UNDO_FAILED", "BUDGET_UNREPORTED"}

    assert {*RETRIED, *NOT_RETRIED, *CRITICAL, *engines_own} == CODES == set(SEVERITY) == set(RETRYABLE)


def test_a_code_of_the_steps_own_is_an_error_that_may_be_retried() -> None:
    found = failure("NO_MESH")

    assert (found.severity, found.retryable) == ("error", True)


# -- what was seen from outside --------------------------------------------------------------------------------------


def test_exit_zero_without_a_report_is_no_failure() -> None:
    assert classify(Outcome()) == (None, ())


@pytest.mark.parametrize(
    ("seen", "code", "message"),
    [
        ({"exit_code": 3}, "EXIT_NONZERO", "exit code 3"),
        ({"exit_code": None, "signal": 9}, "SIGNALED", "killed by signal 9"),
        ({"exit_code": None, "is_timed_out": True}, "TIMEOUT", "it took longer than its timeout"),
        ({"exit_code": 137, "is_out_of_memory": True}, "OUT_OF_MEMORY", "it used more memory than its limit"),
        (
            {"missing_outputs": ("a.vtk", "b.vtk")},
            "OUTPUT_MISSING",
            "declared files missing after exit code 0: a.vtk, b.vtk",
        ),
        ({"output_error": "stdout is not JSON"}, "OUTPUT_INVALID", "stdout is not JSON"),
        ({"report_error": "is not JSON"}, "OUTPUT_INVALID", "$MULLIGAN_ERROR is not JSON"),
        # A code that the action found by itself, with its own words, or none.
        (
            {"exit_code": None, "code": "HTTP_5XX", "message": "503 from chat.example"},
            "HTTP_5XX",
            "503 from chat.example",
        ),
        ({"exit_code": None, "code": "CONNECTION"}, "CONNECTION", "CONNECTION"),
    ],
)
def test_what_happened_has_a_code_and_is_said_in_words(seen: dict[str, object], code: str, message: str) -> None:
    found = failure_of(**seen)

    assert (found.code, found.message) == (code, message)


def test_death_by_signal_is_exit_code_128_and_more_and_names_the_signal() -> None:
    found = failure_of(exit_code=None, signal=15)

    assert (found.code, found.exit_code, found.signal) == ("SIGNALED", 143, 15)


def test_a_shells_own_137_is_an_exit_code_and_no_signal() -> None:
    found = failure_of(exit_code=137)

    assert (found.code, found.exit_code, found.signal) == ("EXIT_NONZERO", 137, None)


def test_a_timeout_has_no_exit_code_although_it_was_killed() -> None:
    found = failure_of(exit_code=None, signal=15, is_timed_out=True)

    assert (found.code, found.exit_code) == ("TIMEOUT", None)


def test_a_kill_for_memory_is_out_of_memory_and_keeps_its_signal() -> None:
    found = failure_of(exit_code=None, signal=9, is_out_of_memory=True)

    assert (found.code, found.exit_code, found.signal) == ("OUT_OF_MEMORY", 137, 9)


@pytest.mark.parametrize(
    "seen",
    [{"exit_code": 2}, {"exit_code": None, "signal": 6}, {"is_timed_out": True}, {"is_out_of_memory": True}],
)
def test_the_message_is_what_the_program_said_on_stderr(seen: dict[str, object]) -> None:
    found = failure_of(stderr_tail="  disk full\n", **seen)

    assert found.message == "disk full"


def test_of_a_long_stderr_the_last_2000_characters_are_kept() -> None:
    found = failure_of(exit_code=1, stderr_tail="a" * 500 + "b" * 2000)

    assert found.message == "b" * 2000


def test_stderr_that_is_only_white_space_says_nothing() -> None:
    assert failure_of(exit_code=1, stderr_tail=" \n\n").message == "exit code 1"


def test_stderr_of_a_program_that_ended_well_does_not_hide_what_is_missing() -> None:
    found = failure_of(missing_outputs=("a.vtk",), stderr_tail="warning: deprecated flag")

    assert found.message == "declared files missing after exit code 0: a.vtk"


def test_of_a_long_trace_the_end_is_kept() -> None:
    found = failure_of(code="EXCEPTION", trace="x" * 50 + "y" * TRACE_CHARS_MAX)

    assert found.trace == "y" * TRACE_CHARS_MAX


@pytest.mark.parametrize("code", ["WORKER_LOST", "INTERRUPTED", "CANCELLED", "RUN_TIMEOUT", "HANDLER_FAILED"])
def test_an_action_cannot_speak_for_the_core(code: str) -> None:
    assert failure_of(code=code, message="so it says").code == "EXCEPTION"


@pytest.mark.parametrize("code", ["CIRCUIT_OPEN", "INTERNAL", "NO_CAPACITY"])
def test_what_only_the_engine_around_it_can_see_is_believed(code: str) -> None:
    assert failure_of(code=code, message="so it says").code == code


# -- what a step reports ---------------------------------------------------------------------------------------------


def test_an_error_that_the_step_reports_fails_it_even_on_exit_zero() -> None:
    found = failure_of(reported=({"code": "NO_MESH", "message": "the mesh is empty"},))

    assert (found.code, found.message, found.severity, found.exit_code) == ("NO_MESH", "the mesh is empty", "error", 0)


def test_a_reported_code_wins_over_the_exit_code_and_keeps_it() -> None:
    found = failure_of(exit_code=7, reported=({"code": "NO_MESH", "message": "the mesh is empty"},))

    assert (found.code, found.exit_code) == ("NO_MESH", 7)


def test_a_reported_code_of_the_table_has_the_properties_of_the_table() -> None:
    found = failure_of(reported=({"code": "SECURITY_VIOLATION", "message": "no"},))

    assert (found.severity, found.retryable) == ("critical", False)


def test_a_step_may_say_that_its_error_is_critical() -> None:
    found = failure_of(reported=({"code": "NO_MESH", "severity": "critical"},))

    assert (found.severity, found.retryable, found.is_fatal) == ("critical", False, True)


def test_a_step_may_say_that_its_error_is_not_to_be_retried() -> None:
    found = failure_of(reported=({"code": "NO_MESH", "retryable": False},))

    assert (found.severity, found.is_fatal) == ("error", True)


def test_of_several_reported_errors_the_first_is_the_failure_and_the_others_are_its_causes() -> None:
    found = failure_of(reported=({"code": "A", "message": "one"}, {"code": "B", "message": "two"}))

    assert found.code == "A"
    assert [cause.code for cause in found.cause] == ["B"]


def test_of_several_reported_errors_a_critical_one_comes_first() -> None:
    found = failure_of(reported=({"code": "A"}, {"code": "B", "severity": "critical"}, {"code": "C"}))

    assert (found.code, found.severity) == ("B", "critical")
    assert [cause.code for cause in found.cause] == ["A", "C"]


def test_of_a_thousand_reports_an_event_keeps_the_first_twenty_and_none_that_is_critical_is_lost() -> None:
    errors = tuple({"code": f"E{i}"} for i in range(1000))
    warnings = tuple({"code": f"W{i}", "severity": "warning"} for i in range(1000))

    found, kept = classify(Outcome(reported=(*errors, *warnings, {"code": "WORST", "severity": "critical"})))

    assert found is not None and found.code == "WORST"
    assert [cause.code for cause in found.cause] == [f"E{i}" for i in range(19)]
    assert [warning.code for warning in kept] == [f"W{i}" for i in range(20)]


def test_a_reported_error_without_a_message_is_said_with_what_the_program_said() -> None:
    found = failure_of(exit_code=1, stderr_tail="disk full", reported=({"code": "NO_MESH"},))

    assert found.message == "disk full"


def test_a_reported_error_without_any_words_is_said_by_its_code() -> None:
    assert failure_of(reported=({"code": "NO_MESH"},)).message == "NO_MESH"


def test_a_reported_error_has_its_details_beside_those_that_were_seen() -> None:
    found = failure_of(
        reported=({"code": "NO_MESH", "details": {"cells": 0}},), details={"peak_memory": 5}, trace="at 3"
    )

    assert (found.details, found.trace) == ({"cells": 0, "peak_memory": 5}, "at 3")


def test_a_step_that_reports_and_then_hangs_has_timed_out_and_its_word_is_the_cause() -> None:
    found = failure_of(
        exit_code=None, is_timed_out=True, reported=({"code": "NO_MESH", "message": "the mesh is empty"},)
    )

    assert (found.code, found.exit_code) == ("TIMEOUT", None)
    assert [cause.code for cause in found.cause] == ["NO_MESH"]


def test_a_warning_fails_nothing_and_is_kept() -> None:
    found, warnings = classify(Outcome(reported=({"code": "SLOW", "severity": "warning", "message": "took a while"},)))

    assert found is None
    assert [(w.code, w.severity, w.message) for w in warnings] == [("SLOW", "warning", "took a while")]


def test_a_warning_beside_an_error_is_kept_apart_from_it() -> None:
    found, warnings = classify(Outcome(reported=({"code": "SLOW", "severity": "warning"}, {"code": "NO_MESH"})))

    assert found is not None and found.code == "NO_MESH" and found.cause == ()
    assert [w.code for w in warnings] == ["SLOW"]


def test_a_warning_does_not_turn_a_failed_attempt_green() -> None:
    found, warnings = classify(Outcome(4, reported=({"code": "SLOW", "severity": "warning"},)))

    assert found is not None and (found.code, found.exit_code) == ("EXIT_NONZERO", 4)
    assert [w.code for w in warnings] == ["SLOW"]


@pytest.mark.parametrize(
    "code", ["WORKER_LOST", "INTERRUPTED", "CANCELLED", "RUN_TIMEOUT", "INTERNAL", "HANDLER_FAILED", "UNDO_FAILED"]
)
@pytest.mark.parametrize(("exit_code", "believed"), [(0, "EXCEPTION"), (9, "EXIT_NONZERO")])
def test_an_engine_code_that_a_step_reports_is_not_believed(code: str, exit_code: int, believed: str) -> None:
    found = failure_of(exit_code=exit_code, reported=({"code": code, "message": "trust me"},))

    assert (found.code, found.message, found.is_fatal) == (believed, "trust me", False)
    assert found.details == {"reported_code": code}


@pytest.mark.parametrize(
    ("report", "code", "message"),
    [
        # Not an object: the step has still said that something is wrong.
        ("out of cheese", "EXCEPTION", "out of cheese"),
        (7, "EXCEPTION", "7"),
        (None, "EXCEPTION", "null"),
        # An object whose fields are of the wrong kind, or not there.
        ({}, "EXCEPTION", "EXCEPTION"),
        ({"code": 12, "message": ["a"]}, "12", '["a"]'),
        ({"code": [1], "message": {"a": None}}, "EXCEPTION", '{"a":null}'),
        ({"code": "X", "message": "m", "severity": "fatal"}, "X", "m"),
        ({"code": "X", "message": "m", "retryable": "yes", "details": "none"}, "X", "m"),
    ],
)
def test_a_malformed_report_is_an_error_and_no_crash(report: object, code: str, message: str) -> None:
    found = failure_of(reported=(report,))

    assert (found.code, found.message, found.severity, found.retryable) == (code, message, "error", True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
REPORTS = JSON | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("code", "severity", "message", "retryable", "details"), JSON)
)


@settings(max_examples=examples(20, 50))
@given(
    reported=st.lists(REPORTS, max_size=3).map(tuple),
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    is_timed_out=st.booleans(),
    stderr_tail=st.text(max_size=20),
)
def test_whatever_was_seen_and_reported_the_verdict_is_bounded_and_can_be_written_down(**seen: object) -> None:
    found, warnings = classify(Outcome(**seen))

    for each in [*warnings, *([found] if found else [])]:
        assert msgspec.json.decode(msgspec.json.encode(each), type=Failure) == each
        assert len(each.message) <= 2000
    assert all(warning.severity == "warning" for warning in warnings)
    assert found is None or found.severity != "warning"
    assert found is not None or not (seen["exit_code"] or seen["signal"] or seen["is_timed_out"])


# -- in a run --------------------------------------------------------------------------------------------------------


def test_a_failure_says_where_and_when_it_happened() -> None:
    run = History(workflow(step("a", rules=retry(1)))).start().wait(5)

    run.fail("a", 3, stderr_tail="disk full").fail("a", 4)

    found = run["a"].failure
    assert found is not None
    assert (found.step, found.item, found.visit, found.attempt, found.exit_code) == ("a", None, 1, 2, 4)
    assert found.at is not None and (found.at - T0).total_seconds() == 5


@pytest.mark.parametrize("code", ["TIMEOUT", "WORKER_LOST", "INTERNAL", "OUR_OWN"])
def test_a_failure_that_is_said_whole_is_believed_whatever_its_code(code: str) -> None:
    said = failure(code, "as if", details={"a": 1})

    assert classify(Outcome(said=said)) == (said, ())


def test_what_no_variable_can_hold_is_replaced_in_a_message() -> None:
    found, _ = classify(Outcome(1, stderr_tail="a\0b\ud800c"))

    assert found is not None
    assert found.message == "a\ufffdb\ufffdc"


def test_a_step_with_warnings_completes_and_shows_them() -> None:
    run = History(workflow(step("a"))).start()

    run.fail("a", 0, reported=({"code": "SLOW", "severity": "warning", "message": "took a while"},))

    assert run.status == "completed"
    assert [warning.message for warning in run["a"].warnings] == ["took a while"]
    assert run.ended.degraded is False


def test_a_step_that_failed_keeps_the_warnings_of_all_its_attempts() -> None:
    run = History(workflow(step("a", rules=retry(1)))).start()

    run.fail("a", reported=({"code": "SLOW", "severity": "warning"},))
    run.fail("a", reported=({"code": "HOT", "severity": "warning"},))

    assert [warning.code for warning in run["a"].warnings] == ["SLOW", "HOT"]


def test_a_warning_says_where_and_when_it_was_given() -> None:
    run = History(workflow(step("a", rules=retry(1)))).start().wait(5)
    run.fail("a")

    run.fail("a", 0, reported=({"code": "SLOW", "severity": "warning"},))

    (warning,) = run["a"].warnings
    assert (warning.step, warning.visit, warning.attempt, warning.at) == ("a", 1, 2, run.clock)


def test_errors_that_cannot_be_read_are_a_warning_where_the_step_has_failed_anyway() -> None:
    found, warnings = classify(Outcome(exit_code=3, report_error="is larger than 64 KiB"))

    assert found is not None
    assert (found.code, found.exit_code) == ("EXIT_NONZERO", 3)
    assert [(warning.code, warning.severity, warning.message) for warning in warnings] == [
        ("OUTPUT_INVALID", "warning", "$MULLIGAN_ERROR is larger than 64 KiB")
    ]


def test_errors_that_cannot_be_read_are_told_once() -> None:
    found, warnings = classify(Outcome(report_error="is not JSON"))

    assert found is not None
    assert (found.code, warnings) == ("OUTPUT_INVALID", ())
