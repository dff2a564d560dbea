"""The text of a failure context, byte for byte, and how its budget is shared."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.deciding.classify import classify
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.failure_context import (
    BEGIN,
    END,
    FAILURE_HEADER,
    SUMMARY_CHARS_MAX,
    SUMMARY_HEADER,
    UPSTREAM_HEADER,
    Context,
    FailedSource,
    Manifest,
    RetrySummary,
    Truncation,
    UpstreamOutput,
    assemble,
    failure_context,
    head_tail,
    retry_summary_text,
)
from mulligan.core.model.outcome import Outcome

T0 = datetime(2026, 11, 15, 3, 12, 4, 567890, tzinfo=UTC)
AT = "2026-11-15T03:12:04.567Z"


def source(message: str = "third", seq: int = 5, summary: RetrySummary | None = None, **fields: object) -> FailedSource:
    # Not made by `failure`, which would cut the message to 2,000: the context must hold its bounds by itself.
    what = Failure("EXIT_NONZERO", message, exit_code=1, **fields)
    return FailedSource("source", 1, 3, 2, 2, "retries_exhausted", what, 1, seq, T0, summary)


def note(content: str = "Retry summary generated.", seq: int = 4) -> RetrySummary:
    return RetrySummary(seq, 2, 3, 3, T0, content)


def output(content: str, seq: int = 20, content_type: str = "text") -> UpstreamOutput:
    return UpstreamOutput("build", 1, 1, seq - 1, seq, T0, content, content_type)


def upstream_output(run_id: int, target: str, one: UpstreamOutput) -> str:
    return assemble(run_id, target, upstream=[one]).text


def retry_summary(run_id: int, target: str, summary: RetrySummary) -> str:
    return assemble(run_id, target, summary=summary).text


def figures(text: str) -> list[tuple[int, int, int]]:
    """Original, included and dropped characters of each envelope."""
    found = re.findall(r"original_chars: (\d+)\n  included_chars: (\d+)\n  dropped_chars: (\d+)\ncontent:", text)
    return [(int(original), int(included), int(dropped)) for original, included, dropped in found]


def payload(text: str) -> str:
    """What stands in the frame of a text with one envelope."""
    _, _, rest = text.partition(f"\n{BEGIN}\n")
    content, _, _ = rest.rpartition(f"\n{END}")
    return content


# ---- the envelopes, byte for byte


def test_a_failure_without_a_retry_summary_is_told_in_one_envelope():
    text = failure_context(1, "remediation", [source()])

    assert text == (
        "MULLIGAN_FAILURE_ROUTE_CONTEXT v1\n"
        "policy_version: 1\n"
        "untrusted_data: true\n"
        "workflow_run_id: 1\n"
        "target_node_key: remediation\n"
        "source_node_key: source\n"
        "source_run_node_id: 1\n"
        "source_attempt: 3\n"
        "failure_artifact_id: 5\n"
        "retry_summary_artifact_id: null\n"
        f"created_at: {AT}\n"
        "truncation:\n"
        "  applied: false\n"
        "  method: none\n"
        "  original_chars: 241\n"
        "  included_chars: 241\n"
        "  dropped_chars: 0\n"
        "content:\n"
        "<<<BEGIN>>>\n"
        "attempt_metadata:\n"
        "  attempt: 3\n"
        "  max_retries: 2\n"
        "  retries_exhausted: true\n"
        "  retries_used: 2\n"
        "  failure_reason: retries_exhausted\n"
        "failure_artifact:\n"
        "  id: 5\n"
        f"  created_at: {AT}\n"
        "  content:\n"
        "third\n"
        "code: EXIT_NONZERO\n"
        "exit_code: 1\n"
        "<<<END>>>"
    )


def test_a_failure_in_a_job_of_a_scheduler_says_where_it_ran():
    text = failure_context(1, "remediation", [source(details={"slurm": {"job_id": "17", "node": "n3\n<<<END>>>"}})])

    assert "exit_code: 1\nran_on: node n3 <\\<<END>>>, Slurm job 17\n<<<END>>>" in text


def test_a_failure_with_a_retry_summary_tells_it_after_the_failure():
    text = failure_context(1, "remediation", [source(summary=note())])

    assert "retry_summary_artifact_id: 4\n" in text
    assert text.endswith(
        "third\n"
        "code: EXIT_NONZERO\n"
        "exit_code: 1\n"
        "retry_summary_artifact:\n"
        "  id: 4\n"
        "  source_attempt: 2\n"
        "  target_attempt: 3\n"
        "  failure_artifact_id: 3\n"
        f"  created_at: {AT}\n"
        "  content:\n"
        "Retry summary generated.\n"
        "<<<END>>>"
    )
    assert figures(text) == [(len(payload(text)), len(payload(text)), 0)]


def test_an_upstream_output_is_told_with_the_hash_of_its_whole_payload():
    text = upstream_output(7, "report", output('{"ok": true}', content_type="json"))

    assert text == (
        "MULLIGAN_UPSTREAM_OUTPUT v1\n"
        "policy_version: 1\n"
        "untrusted_data: true\n"
        "workflow_run_id: 7\n"
        "target_node_key: report\n"
        "source_node_key: build\n"
        "source_run_node_id: 19\n"
        "source_attempt: 1\n"
        "artifact_id: 20\n"
        "artifact_type: report\n"
        "content_type: json\n"
        f"created_at: {AT}\n"
        "sha256: 6bc0da1f42f96fc37b8bd7ed20ba57606d2a0da5cda2b135c7854fbdc985b8a3\n"
        "truncation:\n"
        "  applied: false\n"
        "  method: none\n"
        "  original_chars: 12\n"
        "  included_chars: 12\n"
        "  dropped_chars: 0\n"
        "content:\n"
        "<<<BEGIN>>>\n"
        '{"ok": true}\n'
        "<<<END>>>"
    )


def test_a_retry_summary_is_told_to_the_attempt_it_was_made_for():
    text = retry_summary(7, "build", note("try less"))

    assert text == (
        "MULLIGAN_RETRY_FAILURE_SUMMARY v1\n"
        "policy_version: 1\n"
        "untrusted_data: true\n"
        "workflow_run_id: 7\n"
        "target_node_key: build\n"
        "source_attempt: 2\n"
        "target_attempt: 3\n"
        "summary_artifact_id: 4\n"
        "failure_artifact_id: 3\n"
        f"created_at: {AT}\n"
        f"sha256: {hashlib.sha256(b'try less').hexdigest()}\n"
        "truncation:\n"
        "  applied: false\n"
        "  method: none\n"
        "  original_chars: 8\n"
        "  included_chars: 8\n"
        "  dropped_chars: 0\n"
        "content:\n"
        "<<<BEGIN>>>\n"
        "try less\n"
        "<<<END>>>"
    )


@pytest.mark.parametrize(
    "at",
    [
        T0.astimezone(timezone(timedelta(hours=5, minutes=30))),  # another zone is another spelling of the same time
        T0.replace(tzinfo=None),  # no zone is UTC, wherever the host stands
    ],
)
def test_a_time_is_told_in_utc_with_milliseconds(at):
    text = retry_summary(7, "build", RetrySummary(4, 2, 3, 3, at, "x"))

    assert f"created_at: {AT}\n" in text


# ---- what the payload of a failure says


def test_retries_that_were_not_used_up_are_not_called_exhausted():
    fatal = FailedSource("source", 1, 1, 3, 0, "no_rule", failure("HTTP_4XX", "not found"), 1, 5, T0)

    text = failure_context(1, "fix", [fatal])

    assert "  max_retries: 3\n  retries_exhausted: false\n  retries_used: 0\n  failure_reason: no_rule\n" in text


def test_a_failure_that_said_nothing_is_told_by_its_code():
    text = failure_context(1, "fix", [source("", signal=9, item=4)])

    assert text.endswith("  content:\ncode: EXIT_NONZERO\nexit_code: 1\nsignal: 9\nitem: 4\n<<<END>>>")


def test_causes_and_the_handlers_failure_take_a_line_each_and_the_sixth_cause_is_counted():
    items = tuple(failure("TIMEOUT", f"slow\n  host {n}", item=n) for n in range(7))

    text = failure_context(1, "fix", [source("m", cause=items, handler_failure=failure("HANDLER_FAILED", "worse"))])

    assert text.endswith(
        "m\ncode: EXIT_NONZERO\nexit_code: 1\n"
        "handler_failure: HANDLER_FAILED: worse\n"
        "cause: TIMEOUT, item 0: slow host 0\n"
        "cause: TIMEOUT, item 1: slow host 1\n"
        "cause: TIMEOUT, item 2: slow host 2\n"
        "cause: TIMEOUT, item 3: slow host 3\n"
        "cause: TIMEOUT, item 4: slow host 4\n"
        "causes_left_out: 2\n"
        "<<<END>>>"
    )


def test_no_failed_source_gives_no_text():
    assert failure_context(1, "fix", []) == ""


# ---- cutting


@pytest.mark.parametrize(
    ("text", "limit", "expected", "truncation"),
    [
        # what fits is left alone
        ("abc", 3, "abc", Truncation(False, "none", 3, 3, 0)),
        ("", 0, "", Truncation(False, "none", 0, 0, 0)),
        # an odd limit gives the tail one more
        ("abcdefgh", 5, "ab\n[... 3 characters left out ...]\nfgh", Truncation(True, "head_tail", 8, 5, 3)),
        # a limit of one is all tail
        ("abc", 1, "\n[... 2 characters left out ...]\nc", Truncation(True, "head_tail", 3, 1, 2)),
        # no room at all leaves the marker alone, not the whole text
        ("abc", 0, "\n[... 3 characters left out ...]\n", Truncation(True, "head_tail", 3, 0, 3)),
        # characters are code points, not bytes or UTF-16 units
        ("😀" * 4, 2, "😀\n[... 2 characters left out ...]\n😀", Truncation(True, "head_tail", 4, 2, 2)),
    ],
)
def test_a_cut_keeps_the_head_and_the_tail_and_says_what_it_dropped(text, limit, expected, truncation):
    assert head_tail(text, limit) == (expected, truncation)


@given(st.text(), st.integers(0, 60))
def test_included_and_dropped_characters_are_the_original_ones(text, limit):
    cut, figures_of_it = head_tail(text, limit)

    marker = f"\n[... {figures_of_it.dropped_chars} characters left out ...]\n" if figures_of_it.applied else ""
    assert figures_of_it.original_chars == len(text)
    assert figures_of_it.included_chars + figures_of_it.dropped_chars == len(text)
    assert figures_of_it.included_chars <= limit or not figures_of_it.applied
    assert len(cut) == figures_of_it.included_chars + len(marker)


def test_a_long_failure_is_cut_to_six_thousand_with_its_head_and_tail():
    text = failure_context(1, "fix", [source("a" * 5_000 + "b" * 5_000)])

    [(original, included, dropped)] = figures(text)
    assert (original, included, dropped) == (10_236, 6_000, 4_236)
    assert "  applied: true\n  method: head_tail\n" in text
    assert payload(text).startswith("attempt_metadata:\n")
    assert payload(text).endswith("b\ncode: EXIT_NONZERO\nexit_code: 1")
    assert "\n[... 4236 characters left out ...]\n" in text
    assert len(payload(text)) == 6_000 + len("\n[... 4236 characters left out ...]\n")


def test_a_long_retry_summary_is_cut_to_four_thousand():
    text = retry_summary(1, "build", note("s" * 9_000))

    assert figures(text) == [(9_000, 4_000, 5_000)]


def test_the_hash_of_a_cut_output_is_that_of_the_whole():
    whole = "x" * 20_000

    text = upstream_output(1, "fix", output(whole))

    assert figures(text) == [(20_000, 12_000, 8_000)]
    assert f"sha256: {hashlib.sha256(whole.encode()).hexdigest()}\n" in text


# ---- several failed sources


def test_the_newest_failure_comes_first_whatever_the_order_they_are_given_in():
    sources = [source("old", 5), source("new", 9), source("middle", 7)]

    text = failure_context(1, "fix", sources)

    assert re.findall(r"^failure_artifact_id: (\d+)$", text, re.M) == ["9", "7", "5"]
    assert text == failure_context(1, "fix", sources[::-1])
    assert text.count("<<<END>>>\n\nMULLIGAN_FAILURE_ROUTE_CONTEXT v1\n") == 2


def test_a_long_new_failure_leaves_an_older_one_its_thousand():
    text = failure_context(1, "fix", [source("x" * 8_000, 5), source("y" * 8_000, 9)])

    assert [included for _, included, _ in figures(text)] == [5_000, 1_000]


def test_what_short_failures_do_not_need_goes_to_the_newest_that_wants_more():
    text = failure_context(1, "fix", [source("x" * 8_000, 5), source("y" * 8_000, 7), source("short", 9)])

    assert [included for _, included, _ in figures(text)] == [241, 4_759, 1_000]


def test_failures_beyond_the_budget_are_the_oldest_and_are_counted():
    text = failure_context(1, "fix", [source("x" * 2_000, seq) for seq in range(1, 9)])

    assert re.findall(r"^failure_artifact_id: (\d+)$", text, re.M) == ["8", "7", "6", "5", "4", "3"]
    assert [included for _, included, _ in figures(text)] == [1_000] * 6
    assert text.endswith("<<<END>>>\n\nolder_failed_sources_left_out: 2")


# ---- the whole context


def test_a_context_of_nothing_is_empty():
    assert assemble(1, "fix") == Context("", Manifest())


def test_failures_come_first_then_outputs_in_their_order_then_the_summary():
    context = assemble(1, "fix", [source()], [output("one", 20), output("two", 11)], note())

    headers = re.findall(r"^MULLIGAN_\w+ v1$", context.text, re.M)
    assert headers == [FAILURE_HEADER, UPSTREAM_HEADER, UPSTREAM_HEADER, SUMMARY_HEADER]
    assert context.text == "\n\n".join(
        [
            failure_context(1, "fix", [source()]),
            upstream_output(1, "fix", output("one", 20)),
            upstream_output(1, "fix", output("two", 11)),
            retry_summary(1, "fix", note()),
        ]
    )
    assert context.manifest == Manifest(
        included=(5, 20, 11, 4), included_chars=271, failure_chars=241, upstream_chars=6, summary_chars=24
    )


def test_four_long_outputs_share_what_there_is_and_the_fourth_is_dropped():
    context = assemble(1, "report", upstream=[output("x" * 20_000, seq) for seq in (11, 12, 13, 14)])

    assert [included for _, included, _ in figures(context.text)] == [12_000, 12_000, 8_000]
    assert context.manifest == Manifest(
        included=(11, 12, 13),
        truncated=(11, 12, 13),
        dropped=(14,),
        included_chars=32_000,
        upstream_chars=32_000,
        budget_overflow=True,
    )


def test_the_failure_and_the_summary_take_their_share_before_the_outputs():
    outputs = [output("x" * 20_000, seq) for seq in (11, 12, 13, 14)]

    context = assemble(1, "fix", [source("e" * 8_000)], outputs, note("s" * 8_000))

    assert [included for _, included, _ in figures(context.text)] == [6_000, 12_000, 10_000, 4_000]
    assert context.manifest == Manifest(
        included=(5, 11, 12, 4),
        truncated=(5, 11, 12, 4),
        dropped=(13, 14),
        included_chars=32_000,
        failure_chars=6_000,
        upstream_chars=22_000,
        summary_chars=4_000,
        budget_overflow=True,
    )


def test_outputs_get_what_a_short_failure_does_not_need():
    outputs = [output("x" * 12_000, seq) for seq in (11, 12, 13)]

    context = assemble(1, "fix", [source()], outputs)

    assert [included for _, included, _ in figures(context.text)] == [241, 12_000, 12_000, 7_759]


def test_an_output_that_would_become_a_stub_is_dropped_but_one_that_fits_whole_is_kept():
    long, stub, short = output("x" * 12_000, 11), output("y" * 2_000, 14), output("z" * 999, 15)
    nearly_full = [long, long, output("w" * 7_001, 13)]

    cut = assemble(1, "report", upstream=[*nearly_full, stub]).manifest
    kept = assemble(1, "report", upstream=[*nearly_full, short]).manifest

    assert (cut.dropped, cut.included_chars, cut.budget_overflow) == ((14,), 31_001, True)
    assert (kept.dropped, kept.included_chars, kept.budget_overflow) == ((), 32_000, False)


def test_exactly_a_thousand_characters_of_room_are_used():
    outputs = [output("x" * size, seq) for seq, size in enumerate((12_000, 12_000, 7_000, 2_000), start=11)]

    context = assemble(1, "report", upstream=outputs)

    assert [included for _, included, _ in figures(context.text)] == [12_000, 12_000, 7_000, 1_000]
    assert context.manifest.truncated == (14,)
    assert context.manifest.budget_overflow


def test_a_fifth_output_is_dropped_for_its_place_and_not_for_the_budget():
    manifest = assemble(1, "report", upstream=[output("x", seq) for seq in range(11, 17)]).manifest

    assert manifest == Manifest(included=(11, 12, 13, 14), dropped=(15, 16), included_chars=4, upstream_chars=4)


def test_an_output_over_its_own_limit_is_cut_without_an_overflow():
    manifest = assemble(1, "report", upstream=[output("x" * 12_001, 11)]).manifest

    assert (manifest.truncated, manifest.budget_overflow) == ((11,), False)


def test_failures_left_out_are_in_the_manifest():
    manifest = assemble(1, "fix", [source("x" * 2_000, seq) for seq in range(1, 9)]).manifest

    assert (manifest.included, manifest.dropped) == ((8, 7, 6, 5, 4, 3), (2, 1))
    assert (manifest.failure_chars, manifest.budget_overflow) == (6_000, True)


# ---- the summary of an attempt


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (
            failure("EXIT_NONZERO", "no space left\n", exit_code=7),
            "attempt 2 ended with EXIT_NONZERO, exit code 7; its last message:\nno space left",
        ),
        (
            failure("SIGNALED", exit_code=137, signal=9, item=3),
            "attempt 2 ended with SIGNALED, exit code 137, signal 9, item 3 without a message",
        ),
        (failure("TIMEOUT", "  \n"), "attempt 2 ended with TIMEOUT without a message"),
    ],
)
def test_a_failed_attempt_is_summed_up_in_plain_words(what, expected):
    assert retry_summary_text(what, 2) == expected


def test_a_summary_keeps_the_end_of_a_long_message():
    text = retry_summary_text(Failure("C" * 9_000, "a" * 9_000 + "the end"), 1)

    assert text.endswith("the end")
    assert len(text) < SUMMARY_CHARS_MAX


# -- a long stderr ---------------------------------------------------------------------------------------------------


def test_the_beginning_of_a_long_stderr_comes_before_its_end() -> None:
    text = failure_context(1, "fix", [source("the end", head="the beginning ")])

    assert "\nthe beginning the end\n" in text
    assert "applied: false" in text


def test_what_a_worker_left_out_is_marked_and_counted() -> None:
    text = failure_context(1, "fix", [source("z" * 2000, head="a" * 3000, left_out=10_000)])

    assert "a" * 3000 + "\n[... 10000 bytes left out ...]\n" + "z" * 2000 in text
    [(original, included, dropped)] = figures(text)
    assert (dropped, original - included) == (10_000, 10_000)
    assert "applied: true\n  method: head_tail" in text


def test_a_credential_at_the_cut_of_a_long_stderr_is_not_shown() -> None:
    head, tail = "Cloning\ntoken=ghp_abcdefghij", "klmnopqrstuvwxyz0123 " + "z" * 1979

    text = failure_context(1, "fix", [source(tail, head=head, left_out=7)])

    assert "ghp_abc" not in text
    assert "klmnop" not in text


def test_a_failure_of_a_long_stderr_keeps_both_ends() -> None:
    outcome = Outcome(1, stderr_head="first ", stderr_tail="  last\n", stderr_left_out=0)

    found, _ = classify(outcome)

    assert found is not None
    assert (found.head, found.message) == ("first   ", "last")
