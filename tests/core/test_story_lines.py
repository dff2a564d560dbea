"""Each fact as a sentence: about whom, in which words, in which tone, and for whom it is a detail."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.core.model.event_types import Adjusted, Passed, Route
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Action, Command, Handler, Map, Need, Rule, Template, Triage, Workflow
from mulligan.history.story import StoryLine, StoryWriter, story
from mulligan.testing.history import T0, command, edge, expression, handler, retry, shell, step, workflow

BAD = failure("EXIT_NONZERO", "no space left", exit_code=7)
LATE = failure("TIMEOUT")
FATAL = failure("HTTP_4XX", "404 not found")
SOON = T0 + timedelta(seconds=90)
WARNING = failure("SLOW", "took long", severity="warning")

FLOW = workflow(
    step("a", rules=retry(2, delay=1), on_failure=handler("one", "two", timeout=90), triage=Triage(default="retry")),
    step("b", triage=Triage(), when="inputs.b", join="all"),
    step("c", action=Action("workflow", {"file": "c.yaml"})),
    step("r", on_failure=handler("fix", rerun=2)),
    step("d", rules=(Rule(any=True, max_attempts=1, max_retries=0),), max_attempts=4, deadline=90),
    step("m", map=Map(over=expression("list")), do=(command(when=expression("x > 1")), command("two"))),
)


def entries(*facts: e.Fact) -> list[e.Entry]:
    return [e.Entry(seq, T0, 0, fact) for seq, fact in enumerate(facts, 1)]


def lines(*facts: e.Fact, flow: Workflow | None = FLOW, children: Any = None) -> list[StoryLine]:
    """What is said of the last of them, by somebody who has told the others."""
    writer = StoryWriter(flow, children)
    return [writer.lines_for(entry) for entry in entries(*facts)][-1]


def said(*facts: e.Fact, flow: Workflow | None = FLOW, children: Any = None) -> list[tuple[str, str, str]]:
    return [(line.place, line.text, line.tone) for line in lines(*facts, flow=flow, children=children)]


def named(rows: list[Any]) -> list[str]:
    return [f"{type(row[0]).__name__}-{number}" for number, row in enumerate(rows)]


# -- facts that need no others ---------------------------------------------------------------------------------------

ARTIFACT = {"name": "1/a/1/1/output.json", "size": 1024, "sha256": "0", "format": "json"}
ALONE: list[tuple[e.Fact, tuple[str, str, str] | None]] = [
    (e.RunStarted(1, "w"), None),
    (e.RunStarted(2, "w", by="ann", forked_from=1), ("", "forked from run 1 by ann", "plain")),
    (e.RunPaused("ann", "lunch"), ("", "paused by ann: lunch", "wait")),
    (e.RunPaused(), ("", "paused", "wait")),
    (e.RunResumed("ann"), ("", "resumed by ann", "plain")),
    (e.RunStopping("cancelled", by="ann", reason="enough"), ("", "stopping: cancelled by ann: enough", "bad")),
    (e.RunStopping("cancelled", now=True), ("", "stopping immediately: cancelled", "bad")),
    (e.RunStopping("failed_fast", reason="TIMEOUT in 'a'"), ("", "stopping: fail-fast: TIMEOUT in 'a'", "bad")),
    (e.RunStopping("timed_out", reason="too long"), ("", "stopping: too long", "bad")),
    (e.RunReopened(2, "ann", "again"), ("", "round 2 started by ann: again", "try")),
    (e.RunReopened(2, "", "", ("a", "b")), ("", "round 2 started; running again: 'a', 'b'", "try")),
    (
        e.RunReopened(3, "ann", "", ("m",), from_step="m", indexes=(1, 2)),
        ("", "round 3 started by ann; running again: 2 items of 'm'", "try"),
    ),
    (e.RunCompleted(total_steps=2), ("end", "the run completed (2 steps)", "good")),
    (e.RunCompleted(degraded=True, total_steps=1), ("end", "the run completed (degraded) (1 step)", "good")),
    (e.RunCancelled(total_steps=1), ("end", "the run was cancelled (1 step)", "bad")),
    (
        e.RunFailed(
            total_steps=1234,
            failed_steps_count=1,
            handled_steps_count=2,
            recovered_steps_count=3,
            skipped_steps_count=1100,
        ),
        # Who failed is not known to whoever has not heard it.
        ("end", "the run failed (1,234 steps, 1 failed, 2 handled, 3 recovered, 1,100 skipped)", "bad"),
    ),
    (e.RunFailed(reason="too few", total_steps=1), ("end", "the run failed: too few (1 step)", "bad")),
    (e.StepEntered("a", 1), None),
    (e.StepEntered("a", 2), ("a", "visit 2 started", "plain")),
    (e.StepEntered("end", 2), None),
    (e.StepSkipped("a", "when"), ("a", "skipped: condition not met", "plain")),
    (e.StepSkipped("b", "when"), ("b", "skipped: condition not met: inputs.b", "plain")),
    (e.StepSkipped("a", "no_arrival"), ("a", "skipped: no edge to it was taken", "plain")),
    (e.StepSkipped("b", "no_arrival"), ("b", "skipped: not every edge to it was taken", "plain")),
    (e.StepSkipped("a", "need_unmet"), ("a", "skipped: a step that it needs did not complete", "plain")),
    (e.StepSkipped("a", "unreachable"), ("a", "skipped: it can no longer be reached", "plain")),
    (e.StepSkipped("a", "loop_limit"), ("a", "skipped: max_visits reached", "plain")),
    (e.StepSkipped("b", "unreachable"), ("b", "skipped: it can no longer be reached", "plain")),
    (e.StepSkipped("a", "of_old_times"), ("a", "skipped: of old times", "plain")),
    (e.StepRestored("a", "no_arrival"), ("a", "keeps its earlier result: no edge to it was taken", "plain")),
    (e.StepCompleted("a", 1), ("a", "completed", "good")),
    (e.StepCompleted("a", 1, no_route=True), ("a", "completed; no condition of its edges was met", "good")),
    (e.StepCompleted("a", 1, recovered_by="recovery"), ("a", "recovered by its handler", "good")),
    (e.StepCompleted("a", 1, recovered_by="rerun"), ("a", "recovered on the rerun after its handler", "good")),
    (e.StepCompleted("a", 1, recovered_by="fallback"), ("a", "recovered by its fallback handler", "good")),
    # An end that nobody wrote only evaluates: that is no news.
    (e.StepCompleted("end", 1), None),
    (e.StepCompleted("end", 1, attempt=1), ("end", "completed", "good")),
    (e.StepFailed("a", 1, BAD), ("a", "failed with EXIT_NONZERO 7: no space left", "bad")),
    (e.StepFailed("a", 1, BAD, is_allowed=True), ("a", "failed (allowed) with EXIT_NONZERO 7: no space left", "bad")),
    (e.StepCancelled("a", 1), ("a", "cancelled", "bad")),
    (e.StepParked("a", 1, 1, BAD, "always"), ("a", "parked for a decision", "wait")),
    (
        e.StepParked("a", 1, 1, BAD, "always", SOON),
        ("a", "parked for a decision; without one, it will be retried in 90s", "wait"),
    ),
    (
        e.StepParked("b", 1, 1, BAD, "always", SOON),
        ("b", "parked for a decision; without one, it will fail in 90s", "wait"),
    ),
    (
        e.StepParked("c", 1, 1, BAD, "always", SOON),
        ("c", "parked for a decision; without one, the default applies in 90s", "wait"),
    ),
    (e.StepClassified("a", 1, "retry", "known", "ann"), ("a", "ann decided: retry: known", "try")),
    (
        e.StepClassified("a", 1, "retry", "known", "", Adjusted(cpus=2)),
        ("a", "a person decided: retry with 2 cpus: known", "try"),
    ),
    (
        e.StepClassified("a", 1, "fail", "", "", is_default=True),
        ("a", "no decision in time, default applied: fail", "try"),
    ),
    (e.StepPutBack("a", "rerun", "fix"), ("a", "will run again: 'fix' completed", "try")),
    (e.StepPutBack("a", "arrival", "fix"), None),
    (e.StepReplaced("a", "fix"), ("a", "replaced by 'fix'", "good")),
    (e.StepSettled("a", "failed"), None),
    (e.StepSettled("a", "failed", BAD), ("a", "no step could replace it: EXIT_NONZERO 7: no space left", "bad")),
    (e.LoopTaken("a", 0, "b", 3, SOON), ("a", "loop 3: back to 'b' in 90s", "try")),
    (e.AttemptScheduled("a", 1), None),
    (
        e.AttemptScheduled("a", 2, "lost"),
        ("a", "runs again as attempt 2; a lost worker does not use up a retry", "try"),
    ),
    (e.AttemptStarted("a", 1, "w", "h1"), None),
    (
        e.AttemptStarted("a", 1, "w", "h2", instead_of="h1"),
        ("a", "runs on h2; h1, where its earlier attempt ran, is gone", "try"),
    ),
    (e.AttemptStarted("c", 1), ("c", "called 'c.yaml'", "plain")),
    (e.AttemptFailed("a", 3, BAD), ("a", "attempt 3 failed with EXIT_NONZERO 7: no space left", "bad")),
    (e.AttemptSucceeded("a", 1, {"approved": 1}), None),
    (
        e.AttemptSucceeded("a", 1, {"approved": True, "by": "ann", "reason": "fine"}),
        ("a", "approved by ann: fine", "good"),
    ),
    (e.AttemptSucceeded("a", 1, warnings=(LATE, WARNING)), ("a", "warning: SLOW: took long", "wait")),
    (e.AttemptInterrupted("a", 2), ("a", "attempt 2 interrupted; it will run again", "try")),
    (e.AttemptLost("a", 2), ("a", "attempt 2 lost: its worker is gone", "bad")),
    (
        e.AttemptLost("a", 2, "w", JobEnd(WorkerJob("17", "n3"), "NODE_FAIL")),
        ("a", "attempt 2 lost: its worker on node n3 (Slurm job 17) is gone: Slurm says NODE_FAIL", "bad"),
    ),
    (
        e.AttemptLost("a", 2, "w", JobEnd(WorkerJob("17", array_id="16", array_task=4))),
        ("a", "attempt 2 lost: its worker (Slurm job 16_4) is gone", "bad"),
    ),
    (e.ResultRejected("a", 1, BAD), ("a", "result rejected: EXIT_NONZERO 7: no space left", "bad")),
    (e.RetryScheduled("a", 2, 0, 1, SOON), ("a", "retry 1 of 2 in 90s (rule for any failure)", "try")),
    (e.RetryScheduled("b", 2, 0, 1, SOON), ("b", "retry 1 in 90s (rule 1)", "try")),
    # A rule that the file no longer has.
    (e.RetryScheduled("a", 2, 1, 3, SOON), ("a", "retry 3 in 90s (rule 2)", "try")),
    (
        e.RetryScheduled("a", 2, 0, 1, T0, True, Adjusted(timeout=5)),
        (
            "a",
            "retry 1 of 2 at once after its recovery script with a timeout of 5s (rule for any failure)",
            "try",
        ),
    ),
    (e.HandlerStarted("a", 1, "recovery"), ("a", "recovery handler started (2 commands, timeout 90s)", "try")),
    (e.HandlerStarted("r", 1, "recovery"), ("r", "recovery handler started", "try")),
    (e.HandlerStarted("b", 1, "cleanup"), ("b", "cleanup handler started", "try")),
    (e.HandlerSucceeded("a", 1, "recovery"), None),
    # A handler that the file no longer has.
    (e.HandlerSucceeded("b", 1, "recovery"), None),
    (e.HandlerSucceeded("r", 1, "recovery"), ("r", "handler finished; running again", "try")),
    (e.HandlerSucceeded("a", 1, "cleanup"), ("a", "cleanup handler finished", "plain")),
    (e.HandlerSucceeded("a", 1, "custom", {"status": "failed"}), ("a", "handler decided: failed", "plain")),
    (e.HandlerSucceeded("a", 1, "custom", {"status": "completed"}), None),
    (e.HandlerSucceeded("a", 1, "custom", "nonsense"), None),
    (e.HandlerSucceeded("a", 1, "fallback", {"status": "failed"}), None),
    (
        e.HandlerFailed("a", 1, failure("HANDLER_FAILED", "", cause=(BAD,))),
        ("a", "handler also failed with EXIT_NONZERO 7: no space left", "bad"),
    ),
    (e.MapExpanded("m", 1, [1, 2]), ("m", "expanded to 2 items", "plain")),
    (e.MapExpanded("m", 1, []), ("m", "expanded to 0 items", "plain")),
    (e.MapExpanded("m", 2, None, (1,)), ("m", "running 1 item again", "try")),
    (e.ItemFailed("m[0]", "m", 0, BAD), ("m[0]", "item failed with EXIT_NONZERO 7: no space left", "bad")),
    (e.ItemCompleted("m[0]", "m", 0), None),
    (e.ItemCompleted("m[0]", "m", 0, None, "recovery"), ("m[0]", "item recovered by its handler", "good")),
    (e.UndoCompleted("a", 1), ("a", "undone", "good")),
    (e.UndoFailed("a", 1, BAD), ("a", "undo failed with EXIT_NONZERO 7: no space left", "bad")),
    (e.WarningRecorded("a", WARNING), ("a", "warning: SLOW: took long", "wait")),
    (e.RunLate(7200.0), ("", "late: it has lasted longer than 2h00m", "wait")),
    (e.DataSet("a", 1, "x", 2, 3), ("a", "set data 'x' (version 3)", "plain")),
    (e.ToolCalled("a", 1, 0, "look", position=0), ("a", "called look", "plain")),
    (
        e.ToolCalled("a", 1, 0, "look", position=0, arguments={"word": "x" * 200}),
        ("a", 'called look {"word": "' + "x" * 89 + "…", "plain"),
    ),
    (
        e.ToolCalled("a", 1, 0, "look", position=0, arguments={"w": {"$artifact": ARTIFACT}}),
        ("a", 'called look {"w": "1KiB"}', "plain"),
    ),
    (
        e.ToolAnswered("a", 1, 0, "look", output={"$artifact": ARTIFACT}),
        ("a", "look answered: 1KiB of output", "plain"),
    ),
    (e.ToolCalled("a", 1, 0, "look", position=-1), None),
    (e.ToolAnswered("a", 1, 0, "look", output="one\ntwo\x1b[31m"), ("a", "look answered: one two", "plain")),
    (e.ToolAnswered("a", 1, 0, "look", error="no route"), ("a", "no answer from look: no route", "bad")),
    (e.AttemptFailed("a.model@1.2", 1, BAD), None),
    (e.ItemEntered("m[0]", "m", 0), None),
]


@pytest.mark.parametrize(("fact", "line"), ALONE, ids=named(ALONE))
def test_a_fact_is_told_about_whom_it_is_in_its_words_and_tone(fact: e.Fact, line: tuple[str, str, str] | None) -> None:
    assert said(fact) == ([line] if line else [])


DETAILS: list[tuple[e.Fact, list[tuple[str, str, str]]]] = [
    (e.UndoStarted("a", 1), [("a", "undo started", "try")]),
    (e.ReportRefused("a", 2, "stale_attempt"), [("a", "late report on attempt 2 ignored", "plain")]),
    (e.CommandCompleted("a.on_failure@1.0", "a", "handler"), [("a.on_failure@1.0", "completed", "good")]),
    (
        e.CommandCompleted("a.script@1", "a", "script", recovered_by="recovery"),
        [("a.script@1", "recovered by its handler", "good")],
    ),
    (e.CommandCompleted("m[0].0", "m[0]", "do"), []),
    (
        e.CommandFailed("a.script@1", "a", "script", BAD),
        [("a.script@1", "failed; the retry runs anyway", "bad")],
    ),
    (
        e.CommandFailed("a.on_failure@1.0", "a", "handler", BAD, is_allowed=True),
        [("a.on_failure@1.0", "failed (allowed)", "bad")],
    ),
    (e.CommandFailed("a.on_failure@1.0", "a", "handler", BAD), []),
    (e.CommandSkipped("m[0].0", "m[0]", "do", 0), [("m[0].0", "skipped: condition not met: x > 1", "plain")]),
    (e.CommandSkipped("m[0].1", "m[0]", "do", 1), [("m[0].1", "skipped: condition not met", "plain")]),
    (e.CommandSkipped("z[0].0", "z[0]", "do", 0), [("z[0].0", "skipped: condition not met", "plain")]),
]


@pytest.mark.parametrize(("fact", "expected"), DETAILS, ids=named(DETAILS))
def test_some_facts_are_told_to_whoever_asks_why_and_to_nobody_else(
    fact: e.Fact, expected: list[tuple[str, str, str]]
) -> None:
    found = lines(fact)

    assert [(line.place, line.text, line.tone) for line in found] == expected
    assert all(line.is_detail for line in found)
    assert StoryWriter(FLOW, has_details=False).lines_for(entries(fact)[0]) == []


def test_what_the_attempts_of_a_round_get_is_a_detail_beside_its_sentence() -> None:
    found = lines(e.RunReopened(2, "ann", "", ("a",), adjustments={"a": Adjusted(cpus=2), "b": Adjusted()}))

    assert [(line.place, line.text, line.tone, line.is_detail) for line in found] == [
        ("", "round 2 started by ann; running again: 'a'", "try", False),
        ("a", "runs again with 2 cpus", "try", True),
        ("b", "runs again", "try", True),
    ]


def test_a_step_that_runs_again_because_of_another_says_so_as_a_detail() -> None:
    flow = workflow(
        step("a"),
        step("b", needs=["a"]),
        step("c", needs=[Need("all", "always", is_group=True)]),
        groups={"all": ("a", "b")},
    )
    fact = e.RunReopened(2, "ann", "", ("a", "b", "c"), fresh=(), keep_completed=True)

    assert [(line.place, line.text) for line in lines(fact, flow=flow)] == [
        ("", "round 2 started by ann; running again: 'a', 'b', 'c'; completed steps keep their results"),
        ("b", "runs again after 'a', which it depends on"),
        ("c", "runs again after 'a', which it depends on"),
    ]


# -- why there is no retry -------------------------------------------------------------------------------------------

PASSED: list[tuple[str, str, e.Fact | None, str]] = [
    ("a", "no_rule", None, "no retry: no rule matches (there is one for any failure)"),
    ("b", "no_rule", None, ""),
    ("a", "no_rule", e.AttemptFailed("a", 1, FATAL), "no retry: HTTP_4XX is fatal, and no rule names it"),
    ("b", "no_rule", e.AttemptFailed("b", 1, FATAL), ""),
    ("a", "retries_exhausted", None, "no retry: all retries are used up"),
    (
        "a",
        "retries_exhausted",
        e.AttemptFailed("a", 1, BAD),
        "no retry: all 2 retries of the rule for any failure are used up",
    ),
    ("d", "retries_exhausted", e.AttemptFailed("d", 1, BAD), "no retry: the rule for any failure allows none"),
    (
        "d",
        "rule_attempts_exhausted",
        e.AttemptFailed("d", 1, BAD),
        "no retry: the rule for any failure allows 1 attempt",
    ),
    ("d", "attempts_exhausted", None, "no retry: max_attempts of 4 reached"),
    ("a", "attempts_exhausted", None, "no retry: max_attempts reached"),
    ("d", "deadline_passed", None, "no retry: the deadline of 90s leaves no time"),
    ("a", "deadline_passed", None, "no retry: the deadline leaves no time"),
    ("a", "handler_failure_fatal", None, "not parked: its handler failed, which is fatal"),
    ("a", "critical", None, "not parked: the failure is critical"),
    ("a", "rule_matched", None, "not parked: a rule matched"),
    ("d", "rule_matched", None, "not parked: a rule matched"),
    ("a", "no_handler", None, ""),
    ("z", "attempts_exhausted", None, "no retry: max_attempts reached"),
    ("z", "deadline_passed", None, "no retry: the deadline leaves no time"),
    ("z", "no_rule", None, ""),
]


@pytest.mark.parametrize(("place", "reason", "before", "text"), PASSED)
def test_why_a_rung_let_a_failure_pass(place: str, reason: str, before: e.Fact | None, text: str) -> None:
    facts = [before] if before else []

    assert said(*facts, e.RungPassed(place, "retry", reason)) == ([(place, text, "plain")] if text else [])


def test_reruns_that_are_used_up_are_those_after_a_loss_or_those_of_a_handler() -> None:
    assert said(e.RungPassed("a", "retry", "reruns_exhausted")) == [
        ("a", "lost its worker more than 3 times, which counts as a failure", "plain")
    ]
    assert said(e.RungPassed("a", "handle", "reruns_exhausted")) == [
        ("a", "no rerun: the reruns of its handler are used up", "plain")
    ]


# -- what was told before --------------------------------------------------------------------------------------------


def test_a_failure_that_was_told_in_full_is_said_in_a_word_when_it_ends_its_step() -> None:
    told, other = e.AttemptFailed("a", 1, BAD), failure("EXIT_NONZERO", "another", exit_code=7)
    between = e.HandlerStarted("a", 1, "recovery")

    assert said(told, between, e.StepFailed("a", 1, BAD))[0][1] == "failed with EXIT_NONZERO 7"
    assert said(told, between, e.StepFailed("a", 1, other))[0][1] == "failed with EXIT_NONZERO 7: another"
    renamed = failure("SIGNALED", "no space left")
    assert said(told, between, e.StepFailed("a", 1, renamed))[0][1] == "failed with SIGNALED: no space left"


def test_a_step_that_failed_at_its_only_attempt_says_all_that_the_attempt_did() -> None:
    [line] = lines(e.AttemptFailed("a", 1, BAD), e.StepFailed("a", 1, BAD))

    assert (line.is_whole, line.text) == (True, "failed with EXIT_NONZERO 7: no space left")


@pytest.mark.parametrize(
    ("facts", "is_whole"),
    [
        ((e.AttemptFailed("m[0].1", 1, BAD), e.ItemFailed("m[0]", "m", 0, BAD)), True),
        # Another's attempt, though it begins alike.
        ((e.AttemptFailed("ab", 1, BAD), e.StepFailed("a", 1, BAD)), False),
        # Something was said between them.
        ((e.AttemptFailed("a", 1, BAD), e.AttemptLost("b", 1), e.StepFailed("a", 1, BAD)), False),
        # What says nothing does not come between them.
        ((e.AttemptFailed("a", 1, BAD), e.ItemEntered("m[0]", "m", 0), e.StepFailed("a", 1, BAD)), True),
        ((e.StepFailed("a", 1, BAD),), False),
        ((e.AttemptFailed("a", 1, BAD), e.StepCancelled("a", 1)), False),
    ],
)
def test_only_what_is_said_right_after_the_attempt_says_all_of_it(facts: tuple[e.Fact, ...], is_whole: bool) -> None:
    [line] = lines(*facts)

    assert line.is_whole is is_whole


def test_a_step_that_failed_later_than_its_attempt_is_told_beside_it() -> None:
    writer = StoryWriter(FLOW)
    writer.lines_for(e.Entry(1, T0, 0, e.AttemptFailed("a", 1, BAD)))

    [line] = writer.lines_for(e.Entry(2, SOON, 0, e.StepFailed("a", 1, BAD)))

    assert (line.is_whole, line.text, line.at, line.seq) == (False, "failed with EXIT_NONZERO 7", SOON, 2)


def test_the_story_leaves_out_what_is_said_twice_and_nothing_else() -> None:
    facts = (e.AttemptFailed("b", 1, LATE), e.AttemptFailed("a", 1, BAD), e.StepFailed("a", 1, BAD), e.RunFailed())

    assert [(line.seq, line.text) for line in story(entries(*facts))] == [
        (1, "attempt 1 failed with TIMEOUT"),
        (3, "failed with EXIT_NONZERO 7: no space left"),
        (4, "the run failed (0 steps)"),
    ]
    assert list(story([])) == []


def test_whatever_a_person_writes_is_one_line() -> None:
    assert said(e.RunPaused("ann", "one\ntwo")) == [("", "paused by ann: one two", "wait")]


# -- children and ends -----------------------------------------------------------------------------------------------


def test_a_child_run_is_named_where_it_is_known() -> None:
    children = {("c", 1): 7}

    [calls] = lines(e.AttemptStarted("c", 1), children=children)
    [again] = lines(e.AttemptStarted("c", 2), children=children)

    assert (calls.text, calls.child_run_id) == ("called 'c.yaml' as run 7", 7)
    assert (again.text, again.child_run_id) == ("called 'c.yaml'", 0)
    [ended] = lines(e.AttemptSucceeded("c", 1), children=children)
    assert (ended.text, ended.tone, ended.child_run_id) == ("child run 7 completed", "good", 0)


def test_a_run_that_failed_names_those_whom_nobody_handled_as_far_as_all_are_known() -> None:
    one, two = e.StepFailed("a", 1, BAD), e.StepFailed("b", 1, BAD)

    def text(*facts: e.Fact) -> str:
        return said(*facts)[0][1]

    assert text(one, e.RunFailed(failed_steps_count=1)) == (
        "the run failed: failure of 'a' not handled (0 steps, 1 failed)"
    )
    assert text(one, two, e.RunFailed(failed_steps_count=2)) == (
        "the run failed: failures of 'a', 'b' not handled (0 steps, 2 failed)"
    )
    assert text(two, e.RunFailed(failed_steps_count=2)) == "the run failed (0 steps, 2 failed)"
    assert text(one, e.RunCancelled(failed_steps_count=1)) == "the run was cancelled (0 steps, 1 failed)"
    assert text(one, e.RunFailed()) == "the run failed (0 steps)"


def test_what_end_returned_is_told_as_its_word() -> None:
    says = e.StepCompleted("end", 1, output={"status": "failed", "reason": "too few"})

    assert said(says, e.RunFailed(reason="too few"))[0][1] == "the run failed, end returned: too few (0 steps)"
    assert said(says, e.RunFailed())[0][1] == "the run failed (0 steps)"


@pytest.mark.parametrize("reason", ["the run took longer than its timeout", "enough"])
def test_what_end_did_not_say_is_not_told_as_its_word(reason: str) -> None:
    """It returned something, and no word on the run: the reason is the engine's, or a person's."""
    returned = e.StepCompleted("end", 1, output={"rows": 1})

    assert said(returned, e.RunFailed(reason=reason))[0][1] == f"the run failed: {reason} (0 steps)"


def test_a_line_about_nothing_in_particular_is_plain_and_no_detail() -> None:
    line = StoryLine(T0, "a", "text")

    assert (line.tone, line.seq, line.is_detail, line.is_whole, line.child_run_id) == ("plain", 0, False, False, 0)


def test_a_cleanup_after_a_failure_changes_nothing_about_it() -> None:
    done = e.HandlerSucceeded("a", 1, "cleanup")

    assert said(e.AttemptFailed("a", 1, BAD), done) == [("a", "cleanup handler finished; the failure stands", "plain")]


# -- commands --------------------------------------------------------------------------------------------------------


def handled(*actions: Action) -> tuple[Workflow, list[e.Fact]]:
    """A workflow whose step has these commands as its handler, and what is told when the first has ended."""
    flow = workflow(step("a", on_failure=Handler(tuple(Command(action=one) for one in actions))))
    place = "a.on_failure@1.0"
    return flow, [e.CommandEntered(place, "a", "handler"), e.CommandCompleted(place, "a", "handler")]


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (shell("make clean"), "completed: make clean"),
        (shell("  first \nsecond"), "completed: first "),
        (shell("x" * 40), "completed: " + "x" * 40),
        (shell("x" * 41), "completed: " + "x" * 39 + "…"),
        # A value goes into it: as it was written it says nothing.
        (Action("shell", {"text": "make ${x}"}, {"x": Template((expression("x"),))}), "completed"),
        (Action("python", {"text": "code"}), "completed"),
        (Action("shell", {}), "completed: "),
    ],
)
def test_a_command_of_a_handler_is_told_as_it_was_written(action: Action, text: str) -> None:
    flow, facts = handled(action)

    assert said(*facts, flow=flow) == [("a.on_failure@1.0", text, "good")]


# -- edges -----------------------------------------------------------------------------------------------------------

EDGES = workflow(
    step(
        "s",
        take="first",
        next=[
            edge("x", priority=2),
            edge("y", when="output.y"),
            edge("z", priority=1, when="output.z"),
            edge("tell", "always"),
            edge("end", "always"),
            edge("fix", "failure", codes=("TIMEOUT",), exit_codes=(1, 2), then="rerun"),
            edge("stand", "failure", then="continue"),
            edge("bell", "failure", handles=False),
            edge("horn", "failure", handles=False, codes=("TIMEOUT",)),
            edge("end", "failure", handles=False),
        ],
    ),
    *(step(name) for name in ("x", "y", "z", "tell", "fix", "stand", "bell", "horn")),
)


def details(*facts: e.Fact) -> list[tuple[str, str]]:
    return [(line.text, line.tone) for line in lines(*facts, flow=EDGES) if line.is_detail]


@pytest.mark.parametrize(
    ("taken", "texts"),
    [
        (
            (0,),
            [
                "edge to 'y' not taken: the edge to 'x' comes first",
                # It came before, and its condition was not met.
                "edge to 'z' not taken: condition not met: output.z",
            ],
        ),
        (
            (2, 3),
            [
                "edge to 'x' not taken: the edge to 'z' comes first",
                "edge to 'y' not taken: the edge to 'z' comes first",
                "edge to 'tell' taken: on always; it handles no failure",
            ],
        ),
        (
            (1, 4),
            [
                "edge to 'x' not taken: the loop edge to 'y' is taken alone",
                "edge to 'z' not taken: condition not met: output.z",
            ],
        ),
        (
            (),
            [
                "edge to 'x' not taken: a loop edge is taken alone",
                "edge to 'y' not taken: condition not met: output.y",
                "edge to 'z' not taken: condition not met: output.z",
            ],
        ),
    ],
)
def test_of_each_success_edge_that_was_not_taken_it_is_told_why(taken: tuple[int, ...], texts: list[str]) -> None:
    assert details(e.StepCompleted("s", 1, taken=taken)) == [(text, "plain") for text in texts]


def test_where_all_fitting_edges_are_taken_none_comes_first() -> None:
    both = workflow(step("s", next=["x", edge("y", when="output.y")]), step("x"), step("y"))

    [_, detail] = lines(e.StepCompleted("s", 1, taken=(0,)), flow=both)

    assert detail.text == "edge to 'y' not taken: condition not met: output.y"


def test_an_edge_for_every_end_comes_before_no_other() -> None:
    both = workflow(
        step("s", take="first", next=[edge("x", "always"), edge("y", when="output.y")]), step("x"), step("y")
    )

    [_, detail, _] = lines(e.StepCompleted("s", 1, taken=(0,)), flow=both)

    assert detail.text == "edge to 'y' not taken: condition not met: output.y"


def test_edges_of_one_priority_come_in_the_order_of_the_file() -> None:
    both = workflow(step("s", take="first", next=[edge("x"), edge("y")]), step("x"), step("y"))

    [_, detail] = lines(e.StepCompleted("s", 1, taken=(0,)), flow=both)

    assert detail.text == "edge to 'y' not taken: the edge to 'x' comes first"


def failed(route: Route, *taken: int) -> e.StepFailed:
    return e.StepFailed("s", 1, LATE, route=route, taken=taken)


@pytest.mark.parametrize(
    ("route", "text"),
    [
        (
            Route("selected", 5, "fix", 1),
            "failed with TIMEOUT; routed to 'fix'; 's' will run again when it completes",
        ),
        (Route("selected", 6, "stand", 1), "failed with TIMEOUT; routed to 'stand', which will replace 's'"),
        (Route("selected", None, "fix", 1), "failed with TIMEOUT; routed to 'fix'"),
        (Route("skipped_terminal", reason="stopping"), "failed with TIMEOUT; not routed: the run is stopping"),
        (Route("no_route", reason="no_edge_fits"), "failed with TIMEOUT; no failure edge matches"),
        (Route("no_route"), "failed with TIMEOUT"),
    ],
)
def test_who_takes_over_after_a_failure_and_what_comes_then(route: Route, text: str) -> None:
    assert lines(failed(route), flow=EDGES)[0].text == text


def test_of_each_failure_edge_that_was_not_chosen_it_is_told_why() -> None:
    passed = (
        Passed(5, "fix", "filtered"),
        Passed(6, "stand", "not_first"),
        Passed(0, "x", "loop_limit"),
        Passed(1, "y", "already_entered"),
    )

    found = details(failed(Route("selected", 2, "z", 1, passed=passed), 3, 7))

    assert [text for text, _ in found] == [
        "edge to 'fix' not taken: it matches only TIMEOUT and exit codes 1, 2",
        "edge to 'stand' not taken: the edge to 'z' comes first",
        "edge to 'x' not taken: max_visits reached",
        "edge to 'y' not taken: 'y' was already entered",
        "edge to 'bell' also taken; it handles no failure",
        "edge to 'horn' not taken: it matches only TIMEOUT",
        "edge to 'tell' taken: on always; it handles no failure",
    ]
    assert {tone for _, tone in found} == {"plain"}


def test_a_bell_that_may_ring_no_more_says_so() -> None:
    assert details(failed(Route("no_route"), 8)) == [
        ("edge to 'bell' not taken: max_visits reached", "plain"),
        ("edge to 'horn' also taken; it handles no failure", "plain"),
    ]


def test_in_a_run_that_stops_no_edge_is_looked_at() -> None:
    passed = (Passed(5, "fix", "filtered"),)

    assert details(failed(Route("skipped_terminal", reason="stopping"), 3)) == []
    assert len(details(failed(Route("skipped_terminal", passed=passed), 3))) == 1


def test_whoever_does_not_know_the_workflow_says_what_the_facts_say() -> None:
    route = Route("selected", 5, "fix", 1, passed=(Passed(6, "stand", "does_not_fit"),))

    found = lines(failed(route, 3, 7), flow=None)

    assert [line.text for line in found] == [
        "failed with TIMEOUT; routed to 'fix'",
        "edge to 'stand' not taken: does not fit",
    ]
    assert said(e.StepCompleted("s", 1, taken=()), flow=None) == [("s", "completed", "good")]
