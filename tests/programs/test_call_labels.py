"""The labels that the process of a program computes are those that the core gives."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.support.program_runs import LOAD, Program, every_row

from mulligan.core.effects.program_history import program_history
from mulligan.core.effects.snapshot import restore
from mulligan.core.model.failure import Failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import ProgramCall
from mulligan.core.model.reports import TaskEnded
from mulligan.programs import messages as m
from mulligan.programs.call_labels import CallLabels
from mulligan.programs.conversion import history_of

NAMES = ("load", "note", "nightly")


def labels_of(run: Program) -> CallLabels:
    """As a new process of the program has them."""
    return CallLabels("nightly", m.decode_history(history_of(program_history(run.state, len(run.state.calls)))))


def drawn_calls(dice: Random, first: int, count: int) -> list[ProgramCall]:
    calls = []
    keys: set[tuple[str, str]] = set()
    for ordinal in range(first, first + count):
        name, kind = dice.choice(NAMES), dice.choice(("step", "step", "inline", "value"))
        key = dice.choice(("", "", "", "1", "2", "eu")) if kind != "value" else ""
        branch = f"{dice.randrange(2)}"
        if key:
            if (name, key) in keys:
                continue
            keys.add((name, key))
            branch, ordinal = f"{branch}/{name}={key}", 0
        given: dict[str, Any] = {} if kind == "value" else {"definition": "d", "digest": str(dice.randrange(3))}
        calls.append(ProgramCall(branch, ordinal, name, kind=kind, key=key, **given))  # type: ignore[arg-type]
    return calls


def added(labels: CallLabels, call: ProgramCall) -> tuple[str, tuple[int, int]]:
    identity = m.CallId(call.branch, call.ordinal)
    label = labels.add(identity, call.name, key=call.key, kind=call.kind, digest=call.digest)
    return label, labels.counts(label)


@pytest.mark.parametrize("seed", range(60))
def test_a_process_gives_a_call_the_label_that_the_core_gives_it(seed: int) -> None:
    dice = Random(seed)
    run = Program()
    for _ in range(4):
        labels = labels_of(run)
        first = ProgramCall("", 0, "load", definition="d", digest="first")
        failed, _counts = added(labels, first)
        run.say(first, definition=LOAD, goes_on=True).fail(failed)
        for turn in range(3):
            calls = [one for one in drawn_calls(dice, 4 * turn, 4) if (one.branch, one.ordinal) not in run.state.labels]
            labels = dice.choice((labels, labels_of(run)))
            expected = [added(labels, one) for one in calls]

            run.say(*calls, definition=LOAD, goes_on=True)

            assert [run.state.labels[one.branch, one.ordinal] for one in calls] == [label for label, _ in expected]
            inline = [one for one in expected if run.state.calls[one[0]].kind == "inline"]
            assert [(run[label].visit, run[label].attempt) for label, _ in inline] == [counts for _, counts in inline]
            for label, _ in expected:
                if dice.random() < 0.7 and run.statuses.get(label) == "ready":
                    run.ok(label, output=1)
        # Dropped are the call that has failed, and those behind it. What has completed keeps its result.
        run.say(how="raised", failure=Failure("EXIT_NONZERO"), call=failed)
        for label in [label for label, status in run.statuses.items() if status == "stopping"]:
            run.report(TaskEnded(run.clock, label, run[label].attempt, Outcome(None, signal=15, is_stopped=True)))
        run.retry()
    assert run.state.dropped
    indexed = {identity: labels for identity, labels in run.state.dropped_labels.items() if labels}
    assert restore(run.state.workflow, every_row(run.state)).dropped_labels == indexed
