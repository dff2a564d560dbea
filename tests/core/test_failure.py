"""Failures: severity and retryability by code, and the bounds of what a failure keeps."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.classify import classify
from mulligan.core.model.failure import CAUSES_MAX, CODES, ENGINE_CODES, Failure, failure, number_or_zero
from mulligan.core.model.outcome import Outcome

# code: severity, whether it is retried by any rule, whether only the engine may say it
TABLE = {
    "EXIT_NONZERO": ("error", True, False),
    "SIGNALED": ("error", True, False),
    "EXCEPTION": ("error", True, False),
    "CONNECTION": ("error", True, False),
    "HTTP_5XX": ("error", True, False),
    "HTTP_429": ("error", True, False),
    "TIMEOUT": ("error", True, False),
    "OUT_OF_MEMORY": ("error", True, False),
    "OUTPUT_MISSING": ("error", True, False),
    "OUTPUT_INVALID": ("error", True, False),
    "VALIDATION_FAILED": ("error", True, False),
    "CHILD_FAILED": ("error", True, False),
    "ITEMS_FAILED": ("error", True, False),
    "NO_CAPACITY": ("error", True, False),
    "REQUIREMENTS_FAILED": ("error", True, False),
    "TOOL_FAILED": ("error", True, False),
    "TURN_LIMIT": ("error", False, False),
    "NONDETERMINISTIC": ("error", False, False),
    "UNAWAITED": ("error", False, False),
    "HTTP_4XX": ("error", False, False),
    "PERMISSION": ("error", False, False),
    "INPUT_INVALID": ("error", False, False),
    "EXPRESSION_FAILED": ("error", False, False),
    "APPROVAL_REFUSED": ("error", False, False),
    "APPROVAL_EXPIRED": ("error", False, False),
    "NO_ROUTE": ("error", False, True),
    "LOOP_LIMIT": ("error", False, True),
    "CIRCUIT_OPEN": ("error", False, True),
    # Also a provider's own word: it may hold itself to what is left.
    "BUDGET_EXCEEDED": ("error", False, False),
    "OUTPUT_TOO_LARGE": ("error", False, False),
    "BUDGET_UNREPORTED": ("error", False, True),
    "SECURITY_VIOLATION": ("critical", False, False),
    "RUN_TIMEOUT": ("critical", False, True),
    "INTERNAL": ("critical", False, True),
    "WORKER_LOST": ("error", True, True),
    "INTERRUPTED": ("error", True, True),
    "CANCELLED": ("error", True, True),
    "HANDLER_FAILED": ("error", False, True),
    "UNDO_FAILED": ("error", False, True),
}


def test_the_table_has_these_codes_and_no_others() -> None:
    assert set(TABLE) == CODES
    assert {code for code, row in TABLE.items() if row[2]} == ENGINE_CODES


@pytest.mark.parametrize("code", TABLE)
def test_a_code_has_the_severity_and_the_retries_that_the_table_says(code: str) -> None:
    severity, retryable, _ = TABLE[code]

    found = failure(code)

    assert (found.severity, found.retryable) == (severity, retryable)
    assert found.is_fatal is (severity == "critical" or not retryable)


@pytest.mark.parametrize("code", TABLE)
def test_a_step_may_report_what_is_not_the_engines_to_say(code: str) -> None:
    found, _ = classify(Outcome(0, reported=({"code": code, "severity": "critical"},)))

    assert found is not None
    if TABLE[code][2]:
        assert (found.code, found.details) == ("EXCEPTION", {"reported_code": code})
    else:
        # However bad it is said to be, whether it helps to try again is in the table.
        assert (found.code, found.severity, found.retryable) == (code, "critical", TABLE[code][1])


def test_of_a_trace_the_last_eight_thousand_characters_are_kept() -> None:
    found, _ = classify(Outcome(1, trace="x" + "y" * 8000))

    assert found is not None and found.trace == "y" * 8000


def test_a_code_of_a_steps_own_is_an_error_that_may_be_retried() -> None:
    assert failure("MY_OWN") == Failure("MY_OWN", "", "error", True)


def test_what_is_said_of_a_failure_counts_more_than_the_table() -> None:
    found = failure("TIMEOUT", severity="critical", retryable=False)

    assert (found.severity, found.retryable, found.is_fatal) == ("critical", False, True)
    assert failure("INTERNAL", severity="error", retryable=True).is_fatal is False
    assert failure("TIMEOUT", severity="critical", retryable=True).is_fatal is True


def test_of_a_message_the_last_two_thousand_characters_are_kept() -> None:
    assert failure("TIMEOUT", "x" + "y" * 2000).message == "y" * 2000
    assert failure("TIMEOUT", "y" * 2000).message == "y" * 2000


def test_what_cannot_be_written_to_a_file_or_a_variable_is_replaced() -> None:
    assert failure("TIMEOUT", "a\0b\ud800c\udfffd\ue000").message == "a\ufffdb\ufffdc\ufffdd\ue000"


def test_an_edge_looks_at_the_code_and_at_what_became_of_the_handler() -> None:
    assert failure("TIMEOUT").codes == ("TIMEOUT",)
    assert failure("TIMEOUT", handler_failure=failure("HANDLER_FAILED")).codes == ("TIMEOUT", "HANDLER_FAILED")


# -- causes ----------------------------------------------------------------------------------------------------------


def many(number: int, **fields: Any) -> tuple[Failure, ...]:
    return tuple(Failure("EXIT_NONZERO", str(index), **fields) for index in range(number))


def test_forty_causes_are_kept_and_no_more() -> None:
    assert CAUSES_MAX == 40
    assert failure("CHILD_FAILED", cause=many(40)).cause == many(40)
    assert failure("CHILD_FAILED", cause=many(41)).cause == many(40)


def test_the_nearest_are_kept_level_by_level() -> None:
    deep = Failure("CHILD_FAILED", "deep", cause=many(30))
    other = Failure("CHILD_FAILED", "other", cause=many(30))

    first, second = failure("CHILD_FAILED", cause=(deep, other)).cause

    assert (len(first.cause), len(second.cause)) == (30, 8)
    assert second.cause == many(8)


def test_what_fits_is_kept_as_it_is() -> None:
    causes = (Failure("CHILD_FAILED", cause=many(37), handler_failure=Failure("HANDLER_FAILED")),)

    assert failure("CHILD_FAILED", cause=causes).cause == causes


def test_a_handlers_failure_is_nearer_than_what_lies_below() -> None:
    below = Failure("EXIT_NONZERO", "below", cause=many(60), handler_failure=Failure("HANDLER_FAILED", cause=many(5)))

    [kept] = failure("CHILD_FAILED", cause=(below,)).cause

    assert kept.handler_failure == Failure("HANDLER_FAILED")
    assert (kept.message, kept.cause) == ("below", many(38))


def test_a_handlers_failure_that_is_too_far_is_left_out() -> None:
    filled = tuple(Failure("CHILD_FAILED", str(index), cause=many(1)) for index in range(40))
    late = (*filled[:39], Failure("CHILD_FAILED", "last", handler_failure=Failure("HANDLER_FAILED")))

    kept = failure("CHILD_FAILED", cause=late).cause

    assert [one.cause for one in kept] == [()] * 40
    assert (kept[-1].message, kept[-1].handler_failure) == ("last", None)


def test_a_failure_without_causes_has_none() -> None:
    assert failure("TIMEOUT").cause == ()


@pytest.mark.parametrize(
    ("said", "counts"),
    [(3, 3.0), (0.5, 0.5), (True, 1.0), ("3", 0.0), (None, 0.0), (float("nan"), 0.0), (float("inf"), 0.0), ([1], 0.0)],
)
def test_a_figure_that_is_none_counts_for_nothing(said: Any, counts: float) -> None:
    assert (number_or_zero(said), type(number_or_zero(said))) == (counts, float)
