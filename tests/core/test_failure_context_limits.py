"""The limits of a failure context: nothing is cut, counted or left out one character too early."""

from __future__ import annotations

from mulligan.core.model.failure import failure
from mulligan.core.model.failure_context import (
    FailedSource,
    RetrySummary,
    UpstreamOutput,
    assemble,
    failure_context,
    own_context,
)
from mulligan.testing.history import T0

CAUSE = failure("TIMEOUT", "x" * 2_000)


def summary() -> RetrySummary:
    return RetrySummary(9, 1, 2, 8, T0, "y" * 9_000)


def output(seq: int, chars: int) -> UpstreamOutput:
    return UpstreamOutput(f"s{seq}", 1, 1, seq, seq, T0, "x" * chars)


def test_an_output_that_says_nothing_takes_no_room() -> None:
    found = assemble(1, "fix", upstream=[output(1, 0), output(2, 12_000), output(3, 12_000), output(4, 8_000)])

    assert (found.manifest.included_chars, found.manifest.truncated) == (32_000, ())
    assert found.manifest.budget_overflow is False


def test_an_output_that_is_left_out_takes_no_room() -> None:
    """What is left is less than the least that is worth telling: one that fits whole still gets it."""
    failed = FailedSource("a", 1, 1, 0, 0, "no_rule", failure("TIMEOUT", cause=(CAUSE,) * 5), 1, 2, T0, summary())
    outputs = [output(11, 12_000), output(12, 9_500), output(13, 501), output(14, 500)]

    found = assemble(1, "fix", [failed], outputs, summary()).manifest

    assert (found.failure_chars, found.summary_chars, found.upstream_chars) == (6_000, 4_000, 22_000)
    assert (found.dropped, found.included_chars) == ((13,), 32_000)


def test_five_causes_are_told_and_none_is_left_out() -> None:
    causes = tuple(failure("TIMEOUT", f"cause {number}") for number in range(5))
    source = FailedSource("a", 1, 1, 0, 0, "no_rule", failure("CHILD_FAILED", cause=causes), 1, 2, T0)

    text = failure_context(1, "fix", [source])

    assert text.count("\ncause: TIMEOUT: cause ") == 5
    assert "causes_left_out" not in text


def test_of_a_cause_the_last_two_hundred_characters_are_told() -> None:
    cause = failure("TIMEOUT", "a" + "b" * 200)
    source = FailedSource("a", 1, 1, 0, 0, "no_rule", failure("CHILD_FAILED", cause=(cause,)), 1, 2, T0)

    assert f"\ncause: TIMEOUT: {'b' * 200}\n" in failure_context(1, "fix", [source])


def test_the_words_of_the_frame_are_those_that_agents_know() -> None:
    assert own_context(1, "a", "hello").startswith("MULLIGAN_WORKFLOW_CONTEXT v1\n")
    assert "M\\ULLIGAN_WORKFLOW_CONTEXT v1" in own_context(1, "a", "MULLIGAN_WORKFLOW_CONTEXT v1")
