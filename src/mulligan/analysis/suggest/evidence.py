"""Reads logs, run after run, and counts what a proposal needs: failures, what was decided about them, how that ended.

A *case* is a failure of a step that no rule dealt with, and what followed until the step completed or everybody gave
up: people (or agents) said retry, once or several times, or let it fail. The decision is made in triage, or by giving
the run another round. A retry with a changed file, other inputs or other limits says nothing about a plain retry, so
such a case is not counted.

The unit of every statistic is a run, not an attempt: what happens in one run, and in one night, has one cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from mulligan.analysis.suggest.messages import Template, template_of
from mulligan.core.evolve.tallies import agent_name
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import END, Handler, Rule, Step, Workflow
from mulligan.core.model.workflow import decode as decode_workflow
from mulligan.history.consumption import Consumption, Usage, consumption

# Bounds, so that memory does not grow with what a store has: templates of one error of a step, messages kept of each,
# waits kept of each, attempts kept of each step to look for outages.
TEMPLATES_MAX, SAMPLES_MAX, WAITS_MAX, ATTEMPTS_MAX = 200, 5, 2_000, 20_000
RUN_IDS_MAX = 5
# No case spans these: the engine itself ended the attempt.
_NOT_A_CASE = frozenset({"CANCELLED", "INTERRUPTED", "RUN_TIMEOUT", "APPROVAL_REFUSED", "APPROVAL_EXPIRED"})


class ErrorKey(NamedTuple):
    """Failures that a rule can distinguish by code, exit code and class."""

    code: str
    exit_code: int | None
    # Of an exception without a code of its own.
    exception: str = ""


def key_of(failure: Failure) -> ErrorKey:
    is_plain = failure.code == "EXCEPTION" and failure.is_raised and failure.exceptions
    return ErrorKey(failure.code, failure.exit_code, failure.exceptions[0] if is_plain else "")


class RunCount(msgspec.Struct):
    """What one run says about one error of one step."""

    # Attempts that failed; cases that were retried, of those the ones that worked, and cases that were let fail.
    failures: int = 0
    retried: int = 0
    worked: int = 0
    let_fail: int = 0
    # Cases in which an agent decided, and rounds that ended as failed before somebody gave the run another one.
    agents: int = 0
    lost_runs: int = 0


class ErrorCount:
    """What all runs say about one error of one step: with one template, or with all of its templates."""

    def __init__(self) -> None:
        self.by_run: dict[int, RunCount] = {}
        self.samples: list[str] = []
        # Of cases that worked: how many retries it took, and how long it took until the first was decided.
        self.tries: list[float] = []
        self.waits: list[float] = []
        # A failure of this kind, for the question which rule matches it.
        self.example: Failure | None = None
        self.first: datetime | None = None
        self.last: datetime | None = None

    def run(self, run_id: int) -> RunCount:
        return self.by_run.setdefault(run_id, RunCount())

    def see(self, run_id: int, failure: Failure, at: datetime) -> None:
        """Count a failed attempt."""
        self.run(run_id).failures += 1
        self.example = self.example or failure
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        if len(self.samples) < SAMPLES_MAX and failure.message not in self.samples:
            self.samples.append(failure.message)

    def close(self, run_id: int, case: _Case) -> None:
        """Count a case that has ended."""
        found = self.run(run_id)
        found.agents += case.is_agents
        found.lost_runs += case.lost_runs
        if not case.retries:
            found.let_fail += 1
            return
        found.retried += 1
        found.worked += case.has_worked
        if case.has_worked and len(self.waits) < WAITS_MAX:
            self.tries.append(case.retries)
            self.waits.append(case.wait)

    def add(self, other: ErrorCount) -> None:
        """Take over what was counted of another template of the same error."""
        for run_id, more in other.by_run.items():
            mine = self.run(run_id)
            for name in RunCount.__struct_fields__:
                setattr(mine, name, getattr(mine, name) + getattr(more, name))
        self.samples = [*self.samples, *(one for one in other.samples if one not in self.samples)][:SAMPLES_MAX]
        self.tries, self.waits = self.tries + other.tries, self.waits + other.waits
        self.example = self.example or other.example
        self.first = min(filter(None, (self.first, other.first)), default=None)
        self.last = max(filter(None, (self.last, other.last)), default=None)

    def total(self, name: str) -> int:
        """The sum over all runs."""
        return sum(getattr(one, name) for one in self.by_run.values())

    def decided(self) -> tuple[float, int]:
        """In how many runs somebody decided, and for how many of these "retry": a run counts once, by its share."""
        found = [one for one in self.by_run.values() if one.retried + one.let_fail]
        return sum(one.retried / (one.retried + one.let_fail) for one in found), len(found)

    def worked(self) -> tuple[float, int]:
        """In how many runs a retry was decided, and in how many of these it worked."""
        found = [one for one in self.by_run.values() if one.retried]
        return sum(one.worked / one.retried for one in found), len(found)


class Tried:
    """How often something was tried and worked, by run: a rule, a handler, a remediation."""

    def __init__(self) -> None:
        self.by_run: dict[int, list[float]] = {}
        self.seconds = 0.0

    def add(self, run_id: int, *, worked: bool, seconds: float) -> None:
        found = self.by_run.setdefault(run_id, [0.0, 0.0])
        found[0] += 1
        found[1] += worked
        self.seconds += seconds

    @property
    def tried(self) -> int:
        return int(sum(one[0] for one in self.by_run.values()))

    @property
    def worked(self) -> int:
        return int(sum(one[1] for one in self.by_run.values()))

    @property
    def runs_worked(self) -> float:
        return sum(one[1] / one[0] for one in self.by_run.values())


class UsedOverRuns:
    """What the attempts of a step used, over all runs, and in how many runs they ran out of it."""

    def __init__(self) -> None:
        self.used = Usage()
        self.runs = self.ended_well = 0
        self.out_of_memory = self.timed_out = self.hung = 0
        # In how many runs a successful attempt came close to the limit, or beyond a limit that another exceeded.
        self.near_memory = self.near_timeout = 0
        # What attempts that hung or ran out took.
        self.lost_seconds = 0.0
        self.run_ids: dict[str, list[int]] = {}

    def add(self, run_id: int, one: Consumption) -> None:
        used, mine = one.used, self.used
        self.runs += 1
        self.ended_well += bool(used.ended_well)
        for what in ("out_of_memory", "timed_out", "hung"):
            if getattr(used, what):
                setattr(self, what, getattr(self, what) + 1)
                run_ids = self.run_ids.setdefault(what, [])
                if len(run_ids) < RUN_IDS_MAX and run_id not in run_ids:
                    run_ids.append(run_id)
        memory, timeout = one.asked.memory, one.asked.timeout
        self.near_memory += bool(memory and used.memory_well > NEAR * memory)
        self.near_timeout += bool(timeout and used.seconds_well > NEAR * timeout)
        for name in _SUMS:
            setattr(mine, name, getattr(mine, name) + getattr(used, name))
        for name in _PEAKS:
            setattr(mine, name, max(getattr(mine, name), getattr(used, name)))


# The share of a limit from which a successful attempt shows that others may exceed it.
NEAR = 0.7
_SUMS = ("attempts", "wall_seconds", "cpu_seconds", "out_of_memory", "timed_out", "hung", "killed", "ended_well")
_PEAKS = ("memory", "memory_well", "seconds_well", "cpus", "too_little_memory", "too_little_seconds")


class StepEvidence:
    """Everything that was counted of one step, or of all steps of a matrix."""

    def __init__(self) -> None:
        # By code, exit code and class; then the same by template.
        self.errors: dict[ErrorKey, ErrorCount] = {}
        self.templates: dict[ErrorKey, dict[Template, ErrorCount]] = {}
        # By definition, so that a rule that was changed meanwhile counts for itself.
        self.rules: dict[str, Tried] = {}
        self.handlers: dict[str, Tried] = {}
        # By target.
        self.remediations: dict[str, Tried] = {}
        self.used = UsedOverRuns()
        # The end of each attempt: when, in which run, and the error, None for a success. Only the newest are kept.
        self.attempts: list[tuple[datetime, int, ErrorKey | None]] = []

    def counts(self, failure: Failure) -> Iterator[ErrorCount]:
        """The counts that a failure belongs to."""
        key = key_of(failure)
        yield self.errors.setdefault(key, ErrorCount())
        some = self.templates.setdefault(key, {})
        template = () if _says_nothing(failure) else template_of(failure.message)
        if template not in some and len(some) >= TEMPLATES_MAX:
            template = ()
        yield some.setdefault(template, ErrorCount())


class Evidence:
    """What was counted of one workflow, over its runs."""

    def __init__(self, workflow: str) -> None:
        self.workflow = workflow
        self.steps: dict[str, StepEvidence] = {}
        self.runs = self.events = self.failures = self.decisions = 0
        self.failed_runs = 0

    def add_run(self, run_id: int, workflow: Workflow, entries: Iterable[e.Entry]) -> None:
        """Read the log of one run, once. Runs are added the newest first; the log itself is not kept.

        A run that was forked at an event is left out: its log begins with what happened in another run.
        """
        log = iter(entries)
        first = next(log, None)
        if first is None or (isinstance(first.fact, e.RunStarted) and first.fact.forked_at):
            return
        reading = _Reading(self, run_id, workflow)
        for one in consumption(workflow, reading.follow(chain([first], log))):
            self.step(one.name).used.add(run_id, one)
        reading.finish()
        self.runs += 1

    def step(self, name: str) -> StepEvidence:
        return self.steps.setdefault(name, StepEvidence())


def definition(value: Rule | Handler) -> str:
    """A rule or a handler as a key. As JSON, equal ones may differ: in the order of keys, or in defaults left out."""
    return repr(_sorted(value))


def _sorted(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return [_sorted(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return sorted((str(key), _sorted(one)) for key, one in value.items())
    return [_sorted(one) for one in value] if isinstance(value, list | tuple) else value


def _says_nothing(failure: Failure) -> bool:
    """Whether the message only repeats the code: a command that printed nothing."""
    words = {"", failure.code, f"exit code {failure.exit_code}", f"killed by signal {failure.signal}"}
    return failure.message.strip() in words


# -- reading one run -------------------------------------------------------------------------------------------------


class _Case(msgspec.Struct):
    """A failure that no rule dealt with, until it is known how it ended."""

    failure: Failure
    failed_at: datetime
    retries: int = 0
    lost_runs: int = 0
    wait: float = 0.0
    has_worked: bool = False
    is_agents: bool = False
    # Something else than a plain retry was decided.
    is_void: bool = False


class _Trial(NamedTuple):
    """A rung that is being tried."""

    tried: Tried
    since: datetime


class _Visit(msgspec.Struct):
    """Where a step stands in its run."""

    failure: Failure | None = None
    failed_at: datetime | None = None
    case: _Case | None = None
    # Whether an attempt is on its way that somebody decided on.
    awaits_retry: bool = False
    # Whether the step has ended as failed, so that only another round runs it again.
    has_failed: bool = False
    # The rules that granted a retry in this visit, the last one last, and the handler that ran.
    rules: dict[int, _Trial] = {}
    handler: _Trial | None = None


class _Reading:
    """Follows the log of one run."""

    def __init__(self, evidence: Evidence, run_id: int, workflow: Workflow) -> None:
        self._evidence = evidence
        self._run_id = run_id
        self._define(workflow)
        self._visits: dict[str, _Visit] = {}
        # Steps of a corrected file since the last round: None for all, because the inputs are others.
        self._revised: set[str] | None = set()
        self._inputs: dict[str, Any] = {}
        # What a remediation is tried for, by the step that it is.
        self._remediations: dict[str, tuple[str, _Trial]] = {}

    def _define(self, workflow: Workflow) -> None:
        self._specs: dict[str, Step] = {step.name: step for step in workflow.steps}

    def follow(self, entries: Iterable[e.Entry]) -> Iterator[e.Entry]:
        for entry in entries:
            self._evidence.events += 1
            read = _READERS.get(type(entry.fact))
            if read is not None:
                read(self, entry.fact, entry.at)
            yield entry

    def finish(self) -> None:
        """The log has ended: what is still open has not worked, unless an attempt is on its way."""
        for step, visit in self._visits.items():
            if visit.case is not None and not visit.awaits_retry and visit.case.retries:
                self._close(step, visit)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def attempt_failed(self, fact: e.AttemptFailed | e.ResultRejected, at: datetime) -> None:
        failure = fact.failure
        family = self._family(step_name(fact.place))
        if family is None or "@" in fact.place:
            return
        self._note_attempt(family, at, key_of(failure))
        if fact.place not in self._specs:
            return
        self._evidence.failures += 1
        for count in self._evidence.step(family).counts(failure):
            count.see(self._run_id, failure, at)
        visit = self._visit(fact.place)
        visit.failure, visit.failed_at, visit.has_failed = failure, at, False
        if visit.awaits_retry and visit.case is not None:
            visit.awaits_retry = False
            case = visit.case
            if (failure.code, failure.exit_code) != (case.failure.code, case.failure.exit_code):
                # The retry led to another failure, which is a case of its own.
                self._close(fact.place, visit)

    def attempt_succeeded(self, fact: e.AttemptSucceeded, at: datetime) -> None:
        family = self._family(step_name(fact.place))
        if family is not None and "@" not in fact.place and not fact.reused_run_id:
            self._note_attempt(family, at, None)

    def _note_attempt(self, family: str, at: datetime, error: ErrorKey | None) -> None:
        attempts = self._evidence.step(family).attempts
        if len(attempts) < ATTEMPTS_MAX:
            attempts.append((at, self._run_id, error))

    # -- cases -------------------------------------------------------------------------------------------------------

    def parked(self, fact: e.StepParked, at: datetime) -> None:
        visit = self._visit(fact.step)
        self._end_trials(visit, at, is_completed=False)
        self._open_case(fact.step, visit, fact.failure, at)

    def _open_case(self, step: str, visit: _Visit, failure: Failure, at: datetime) -> _Case | None:
        if failure.code in _NOT_A_CASE or step not in self._specs:
            return None
        if visit.case is None:
            visit.case = _Case(failure, visit.failed_at or at)
        return visit.case

    def classified(self, fact: e.StepClassified, at: datetime) -> None:
        visit = self._visit(fact.step)
        case = visit.case
        if case is None:
            return
        if fact.is_default:
            # Nobody decided.
            case.is_void = True
        else:
            self._evidence.decisions += 1
            self._decide(visit, case, fact.by, at, is_retry=fact.verdict == "retry")
            case.is_void |= fact.adjusted is not None or bool(fact.budgets)
        if fact.verdict != "retry":
            self._close(fact.step, visit)

    def _decide(self, visit: _Visit, case: _Case, by: str, at: datetime, *, is_retry: bool) -> None:
        case.is_agents |= bool(agent_name(by))
        if is_retry:
            if not case.retries:
                case.wait = (at - case.failed_at).total_seconds()
            case.retries += 1
            visit.awaits_retry = True

    def revised(self, fact: e.RunRevised, at: datetime) -> None:
        self._define(decode_workflow(msgspec.json.encode(fact.definition)))
        if fact.inputs != self._inputs:
            self._revised, self._inputs = None, fact.inputs
        elif self._revised is not None:
            self._revised |= {*fact.changed, *fact.added, *fact.renewed}

    def started(self, fact: e.RunStarted, at: datetime) -> None:
        self._inputs = fact.inputs

    def reopened(self, fact: e.RunReopened, at: datetime) -> None:
        """Another round is a decision about every step that had failed, if the step itself did not change."""
        for step, visit in self._visits.items():
            if not visit.has_failed or visit.failure is None:
                continue
            if step not in fact.put_back and step != fact.from_step:
                continue
            case = self._open_case(step, visit, visit.failure, at)
            visit.has_failed = False
            if case is None:
                continue
            self._evidence.decisions += 1
            case.lost_runs += 1
            self._decide(visit, case, fact.by, at, is_retry=True)
            is_changed = self._revised is None or step in self._revised
            case.is_void |= is_changed or step in fact.adjustments or bool(fact.budgets) or bool(fact.indexes)
        self._revised = set()

    def _close(self, step: str, visit: _Visit) -> None:
        case, family = visit.case, self._family(step)
        visit.case, visit.awaits_retry = None, False
        if case is None or case.is_void or family is None:
            return
        for count in self._evidence.step(family).counts(case.failure):
            if count.example is None:
                # A map fails without an attempt of its own.
                count.see(self._run_id, case.failure, case.failed_at)
            count.close(self._run_id, case)

    # -- how a visit ends --------------------------------------------------------------------------------------------

    def completed(self, fact: e.StepCompleted, at: datetime) -> None:
        visit = self._visit(fact.step)
        if visit.case is not None:
            visit.case.has_worked = visit.awaits_retry and not fact.recovered_by
            if visit.case.retries:
                self._close(fact.step, visit)
        self._end_trials(visit, at, is_completed=True, recovered_by=fact.recovered_by)
        self._end_remediation(fact.step, at, worked=True)
        visit.case, visit.awaits_retry, visit.has_failed = None, False, False

    def failed(self, fact: e.StepFailed, at: datetime) -> None:
        visit = self._visit(fact.step)
        self._end_trials(visit, at, is_completed=False)
        self._end_remediation(fact.step, at, worked=False)
        visit.has_failed = not fact.is_allowed and not fact.route.is_sent
        if fact.failure.code not in _NOT_A_CASE:
            visit.failure, visit.failed_at = fact.failure, visit.failed_at or at
        family = self._family(fact.step)
        if family is not None and fact.route.is_sent and fact.route.to is not None:
            tried = self._evidence.step(family).remediations.setdefault(fact.route.to, Tried())
            self._remediations[fact.route.to] = fact.step, _Trial(tried, at)
        if visit.case is not None and visit.case.retries and not visit.has_failed:
            self._close(fact.step, visit)

    def cancelled(self, fact: e.StepCancelled, at: datetime) -> None:
        visit = self._visit(fact.step)
        # A cancelled attempt says nothing.
        visit.case, visit.awaits_retry = None, False
        visit.rules, visit.handler = {}, None

    def run_failed(self, fact: e.Fact, at: datetime) -> None:
        self._evidence.failed_runs += 1

    # -- what is tried -----------------------------------------------------------------------------------------------

    def retry_scheduled(self, fact: e.RetryScheduled, at: datetime) -> None:
        spec, family = self._specs.get(fact.place), self._family(fact.place)
        if spec is None or family is None or fact.rule >= len(spec.rules):
            return
        visit = self._visit(fact.place)
        tried = self._evidence.step(family).rules.setdefault(definition(spec.rules[fact.rule]), Tried())
        trial = visit.rules.pop(fact.rule, None) or _Trial(tried, at)
        visit.rules[fact.rule] = trial

    def handler_started(self, fact: e.HandlerStarted, at: datetime) -> None:
        spec, family = self._specs.get(fact.place), self._family(fact.place)
        if spec is None or family is None or spec.on_failure is None:
            return
        tried = self._evidence.step(family).handlers.setdefault(definition(spec.on_failure), Tried())
        visit = self._visit(fact.place)
        self._end_rules(visit, at, worked=False)
        if visit.handler is None:
            visit.handler = _Trial(tried, at)

    def handler_succeeded(self, fact: e.HandlerSucceeded, at: datetime) -> None:
        """A cleanup has nothing more to do; the others are judged by how the step ends."""
        visit = self._visits.get(fact.place)
        if fact.strategy == "cleanup" and visit is not None and visit.handler is not None:
            self._judge(visit.handler, at, worked=True)
            visit.handler = None

    def _end_trials(self, visit: _Visit, at: datetime, *, is_completed: bool, recovered_by: str = "") -> None:
        """The step has ended, or is parked. A handler with a rerun has worked if the rerun completed the step."""
        self._end_rules(visit, at, worked=is_completed and not recovered_by)
        if visit.handler is not None:
            self._judge(visit.handler, at, worked=is_completed)
        visit.handler = None

    def _end_rules(self, visit: _Visit, at: datetime, *, worked: bool) -> None:
        """Of several rules that granted retries, the last one granted the attempt that ended the visit."""
        for number, trial in enumerate(visit.rules.values(), 1):
            self._judge(trial, at, worked=worked and number == len(visit.rules))
        visit.rules = {}

    def _end_remediation(self, step: str, at: datetime, *, worked: bool) -> None:
        if step in self._remediations:
            _, trial = self._remediations.pop(step)
            self._judge(trial, at, worked=worked)

    def _judge(self, trial: _Trial, at: datetime, *, worked: bool) -> None:
        trial.tried.add(self._run_id, worked=worked, seconds=(at - trial.since).total_seconds())

    # -- names -------------------------------------------------------------------------------------------------------

    def _visit(self, step: str) -> _Visit:
        return self._visits.setdefault(step, _Visit())

    def _family(self, step: str) -> str | None:
        """The name under which the file has the step: of a matrix, that of the matrix. None for `end`."""
        spec = self._specs.get(step)
        return None if spec is None or step == END else spec.sweep or spec.name


_READERS: dict[type[e.Fact], Any] = {
    e.RunStarted: _Reading.started,
    e.AttemptFailed: _Reading.attempt_failed,
    e.ResultRejected: _Reading.attempt_failed,
    e.AttemptSucceeded: _Reading.attempt_succeeded,
    e.StepParked: _Reading.parked,
    e.StepClassified: _Reading.classified,
    e.RunRevised: _Reading.revised,
    e.RunReopened: _Reading.reopened,
    e.StepCompleted: _Reading.completed,
    e.StepFailed: _Reading.failed,
    e.StepCancelled: _Reading.cancelled,
    e.RunFailed: _Reading.run_failed,
    e.RetryScheduled: _Reading.retry_scheduled,
    e.HandlerStarted: _Reading.handler_started,
    e.HandlerSucceeded: _Reading.handler_succeeded,
}
