"""Default values of plain data, which are not written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.deciding.agents.agent_context import AgentContext
from mulligan.core.deciding.workers.resource_usage import Proposal
from mulligan.core.effects.effects import EnterMore, QueueTask, SetTimer
from mulligan.core.effects.tasks import Task
from mulligan.core.model.failure import Failure
from mulligan.core.model.failure_context import Manifest, UpstreamOutput
from mulligan.history.consumption import Usage
from mulligan.history.story import StoryLine
from mulligan.history.views import Wait
from mulligan.testing.history import T0


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Failure("TIMEOUT"), {"code": "TIMEOUT"}),
        (AgentContext("a"), {"target": "a"}),
        (Proposal("a", "memory", 7), {"step": "a", "what": "memory", "given": 7}),
        (Wait("task", "attempt 1"), {"kind": "task", "text": "attempt 1"}),
        # An effect says which it is: it is written with the others.
        (QueueTask("a", 1), {"type": "QueueTask", "place": "a", "attempt": 1}),
        (EnterMore(7), {"type": "EnterMore", "begin": 7}),
        (SetTimer("run", T0), {"type": "SetTimer", "kind": "run", "due": "2026-01-01T00:00:00Z"}),
        (
            Task(1, "a", 1, "shell", {}, "w", "v", "a", 1),
            {
                "run_id": 1,
                "place": "a",
                "attempt": 1,
                "kind": "shell",
                "params": {},
                "workflow": "w",
                "version": "v",
                "step": "a",
                "visit": 1,
            },
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_as_it_would_be_anyway_is_not_written_and_comes_back(value: Any, written: dict[str, Any]) -> None:
    assert msgspec.to_builtins(value) == written
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


def test_a_failure_of_which_nothing_is_said_is_an_error_that_may_be_retried() -> None:
    plain = Failure("TIMEOUT")

    assert (plain.message, plain.severity, plain.retryable, plain.trace) == ("", "error", True, "")
    assert (plain.step, plain.item, plain.visit, plain.attempt) == ("", None, 0, 0)


def test_what_nobody_measured_is_nought() -> None:
    assert set(msgspec.structs.astuple(Usage())) == {0, None}
    assert Usage().tokens is None


def test_a_context_of_nothing_has_an_account_of_nothing() -> None:
    plain = Manifest()

    assert (plain.included, plain.truncated, plain.dropped, plain.budget_overflow) == ((), (), (), False)
    assert {plain.included_chars, plain.failure_chars, plain.upstream_chars, plain.summary_chars} == {0}
    assert UpstreamOutput("a", 1, 1, 1, 2, T0, "said").content_type == "text"


def test_what_is_for_nobody_in_particular_names_nobody() -> None:
    timer, wait, line = SetTimer("run", T0), Wait("all", "everything else"), StoryLine(T0, "a", "text")

    assert (timer.place, timer.number) == ("", 0)
    assert (wait.place, wait.attempt, wait.worker, wait.count) == ("", 0, "", 0)
    assert (line.tone, line.seq, line.is_detail, line.is_whole, line.child_run_id) == ("plain", 0, False, False, 0)
    assert Task(1, "a", 1, "shell", {}, "w", "v", "a", 1).env_attempt == 0
