"""Invariants of reused results: each is checked when a worker takes a result of an earlier run in place of a task.

They are judged by the logs of both runs, never by fingerprints, which are what is checked. And of approvals that a fork
takes over, which are judged by the inputs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Step, expressions_in
from mulligan.core.state.state import State
from mulligan.ports import Lease
from proof.invariants.log_facts import LogFacts

# The facts of a run as far as its log goes now; None if there is no such run.
ReadFacts = Callable[[int], LogFacts | None]


class ReuseChecks:
    """Check each reused result; violations are raised by the cluster."""

    def __init__(self, read_facts: ReadFacts) -> None:
        self.violations: list[str] = []
        self.count = 0
        self._read_facts = read_facts

    def on_reuse(self, lease: Lease, report: TaskEnded) -> None:
        self.count += 1
        try:
            here, there = self._read_facts(lease.task.run_id), self._read_facts(report.reused_run_id)
            promise_12_only_what_may_is_reused(here, lease)
            promise_12_a_reused_result_is_that_of_an_equal_step(here, there, lease, report)
        except AssertionError as error:
            self.violations.append(str(error))


def promise_12_only_what_may_is_reused(here: LogFacts | None, lease: Lease) -> None:
    """Nothing that is run on purpose: a forced step, another visit, another try, a step that may not be cached."""
    assert here is not None
    place = lease.task.place
    step = here.lineage(place)[-1]
    started = here.log[0].fact
    spec = here.steps[step]
    is_wanted = spec.cache or (isinstance(started, e.RunStarted) and started.changed_only and spec.cache is None)
    if not is_wanted:
        raise _violation(lease, "is not to take the result of another run")
    if isinstance(started, e.RunStarted) and step in started.forced:
        raise _violation(lease, "is forced to run")
    if here.visits.get(step) != 1 or here.tries.get(place):
        raise _violation(lease, "runs again on purpose")


def promise_12_a_reused_result_is_that_of_an_equal_step(
    here: LogFacts | None, there: LogFacts | None, lease: Lease, report: TaskEnded
) -> None:
    """A step with the same definition and the same values completed there with this output, and stands."""
    assert here is not None
    if there is None or there is here:
        raise _violation(lease, f"takes a result of run {report.reused_run_id}, which is not an earlier one")
    found = [entry.fact for entry in there.log if _is_source(entry.fact, report)]
    if not found:
        raise _violation(lease, f"takes a result that run {report.reused_run_id} never had")
    reasons = [_refusal(here, there, lease, fact) for fact in found]
    if all(reasons):
        raise _violation(lease, f"takes a result of run {report.reused_run_id}, {reasons[-1]}")


def _is_source(fact: e.Fact, report: TaskEnded) -> bool:
    return (
        isinstance(fact, e.AttemptSucceeded)
        and not fact.reused_run_id
        and bool(fact.fingerprint)
        and fact.output == report.output
    )


def _refusal(here: LogFacts, there: LogFacts, lease: Lease, fact: Any) -> str:
    """Why this result may not be taken over; "" if it may."""
    place, step, source = lease.task.place, here.lineage(lease.task.place)[-1], there.lineage(fact.place)[-1]
    if step != source or here.specs[place].action != there.specs[fact.place].action:
        return "where it was the result of something else"
    if _bindings(here, place, lease.task.attempt) != _bindings(there, fact.place, fact.attempt):
        return "where the step had other values"
    if fact.data:
        return "where the step has set data of the run"
    end = _end_of(there, fact)
    if end is None:
        return "where the step has not completed with it"
    if end.recovered_by:
        return f"where it was recovered by {end.recovered_by}"
    visit = end.visit if isinstance(end, e.StepCompleted) else 0
    if (source, visit) in there.undone:
        return "where it was undone"
    # Of a step that a corrected definition has removed, too.
    spec = there.specs[source]
    if isinstance(spec, Step) and spec.undo is not None and not there.is_over:
        return "which may still undo it"
    return ""


def _bindings(facts: LogFacts, place: str, attempt: int) -> dict[str, Any] | None:
    """The values with which an attempt was scheduled. An adopted attempt has those of the log it was kept from."""
    for entry in reversed(facts.log):
        fact = entry.fact
        if isinstance(fact, e.AttemptScheduled) and (fact.place, fact.attempt) == (place, attempt):
            return fact.bindings
    return None


def _end_of(facts: LogFacts, result: e.AttemptSucceeded) -> e.StepCompleted | e.CommandCompleted | None:
    """How the place completed with this result; None if it did not."""
    entries = iter(facts.log)
    for entry in entries:
        if entry.fact is result:
            break
    for entry in entries:
        fact = entry.fact
        if isinstance(fact, e.StepCompleted) and fact.step == result.place:
            return fact if fact.attempt == result.attempt else None
        if isinstance(fact, e.CommandCompleted) and fact.place == result.place:
            return fact
        if isinstance(fact, e.AttemptScheduled) and fact.place == result.place:
            return None
    return None


# -- approvals that a fork takes over --------------------------------------------------------------------------------


def promise_12_an_approval_counts_for_its_inputs(before: State, fork: State, entry: e.Entry) -> None:
    """A fork with other inputs keeps no approval if a step behind it runs, and that or its question reads inputs.

    `before` is the run that it was forked from; `fork` is the fork before this fact.
    """
    fact = entry.fact
    kept: dict[str, str]
    if isinstance(fact, e.RunForked):
        # All steps of it may run.
        inputs, kept = fact.inputs, {place.key: place.status for place in fork.steps() if place.status == "completed"}
    else:
        assert isinstance(fact, e.RunStarted)
        inputs, kept = fact.inputs, {one.step: one.status for one in fact.kept}
    if inputs is None or inputs == before.run.inputs:
        return
    for name, status in kept.items():
        action = fork.graph.nodes[name].step.action
        if status != "completed" or not traits_of(action).asks_person:
            continue
        behind = sorted(one for one in fork.graph.behind((name,)) if one not in kept and one != name)
        read = {one: expressions_in(fork.graph.nodes[one].step) for one in (name, *behind)}
        reading = [one for one, found in read.items() if any("inputs" in expression.reads for expression in found)]
        if behind and reading:
            raise AssertionError(
                f"promise 12: a fork with other inputs keeps the approval of '{name}', and '{reading[0]}' reads inputs"
            )


def _violation(lease: Lease, sentence: str) -> AssertionError:
    task = lease.task
    return AssertionError(f"promise 12: attempt {task.attempt} of '{task.place}' in run {task.run_id} {sentence}")
