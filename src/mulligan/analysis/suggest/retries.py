"""Proposes a retry rule where people keep saying retry and it keeps working.

The rule is the narrowest one that the evidence supports. An exit code or an error code that means one thing is its
condition. One that means anything, such as exit code 1, is not: there the message is, if one message carries the
evidence. Where messages under one code behave differently, each is looked at alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

from mulligan.analysis.statistics import median, quantile, wilson_bounds
from mulligan.analysis.suggest.changes import AddRule, is_risky_to_repeat, steps_by_name
from mulligan.analysis.suggest.evidence import RUN_IDS_MAX, ErrorCount, ErrorKey, Evidence, StepEvidence
from mulligan.analysis.suggest.messages import Template, is_found_safely, merge_templates, pattern_of, written
from mulligan.analysis.suggest.proposals import RUNS_MIN, Answer, Counted, Nearly, Proposal, Question, Saving
from mulligan.core.deciding.conditions import describe_rule, matching_rule
from mulligan.core.model.text.formatting import format_duration, pluralize
from mulligan.core.model.workflow import Step, Workflow
from mulligan.history.consumption import written_duration

# Both must be true of more than every second case: people say retry, and a retry works.
SHARE_MIN = 0.5
# How many retries: so many that this share of the cases that worked would have worked with them.
COVERED, RETRIES_MAX = 0.9, 5
# Delays as people write them. Nobody lets a workflow wait for longer because it was night.
_DELAYS = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
# Programs use these for everything.
_VAGUE_EXIT_CODES, _VAGUE_CODES = frozenset({1, 2, 255}), frozenset({"EXCEPTION", "EXIT_NONZERO", "CHILD_FAILED"})
# So are these classes.
_VAGUE_EXCEPTIONS = frozenset(
    {
        "",
        "Exception",
        "RuntimeError",
        "ValueError",
        "TypeError",
        "KeyError",
        "AttributeError",
        "AssertionError",
        "OSError",
    }
)
# A breaker decides about these itself, and a retry spends what is not there.
_NEVER = frozenset({"CIRCUIT_OPEN", "BUDGET_EXCEEDED", "LOOP_LIMIT", "NO_ROUTE", "INTERNAL"})


def retry_questions(evidence: Evidence, workflow: Workflow) -> Iterator[Question]:
    """One look per step and error about which somebody decided, and one per message under it."""
    by_name = steps_by_name(workflow)
    for name, of_step in evidence.steps.items():
        steps = by_name.get(name, [])
        if not steps:
            continue
        for key, whole in of_step.errors.items():
            if key.code in _NEVER or not whole.decided()[1]:
                continue
            look = _Look(evidence.workflow, name, steps[0], key, whole, _merged(of_step, key))
            if look.is_open:
                yield Question(look.questions, look.answer)


def _merged(of_step: StepEvidence, key: ErrorKey) -> dict[Template, ErrorCount]:
    """What was counted by template, after templates that differ in one word were merged."""
    found: dict[Template, ErrorCount] = {}
    some = of_step.templates.get(key, {})
    owners = merge_templates(some)
    for template in sorted(some):
        found.setdefault(owners[template], ErrorCount()).add(some[template])
    return found


class _Look:
    """The question whether one error of one step should be retried."""

    def __init__(
        self,
        workflow: str,
        name: str,
        step: Step,
        key: ErrorKey,
        whole: ErrorCount,
        by_template: dict[Template, ErrorCount],
    ) -> None:
        self._workflow, self._name, self._step, self._key, self._whole = workflow, name, step, key, whole
        self._by_template = {one: count for one, count in by_template.items() if one and count.decided()[1]}

    @property
    def is_open(self) -> bool:
        """Whether a new rule would be asked at all: no rule of the step matches the failure, and attempts are left."""
        example = self._whole.example
        has_bound = self._step.max_attempts is not None and self._step.max_attempts < 2
        return example is not None and not has_bound and matching_rule(self._step.rules, example) is None

    @property
    def questions(self) -> int:
        """One for the error and one for each message, unless there is one message: then both are the same."""
        return 1 + len(self._by_template) if len(self._by_template) > 1 else 1

    def answer(self, z: float) -> Answer:
        proposals: Answer = [self._proposal(change, count, z, said) for change, count, said in self._choose(z)]
        return proposals or [self._nearly(z)]

    # -- which condition ---------------------------------------------------------------------------------------------

    def _choose(self, z: float) -> Iterator[tuple[AddRule, ErrorCount, str]]:
        is_fatal = self._whole.example is not None and self._whole.example.is_fatal
        contrary = [count for count in self._by_template.values() if self._is_contrary(count)]
        is_vague = self._key.exit_code in _VAGUE_EXIT_CODES or (
            self._key.exit_code is None and self._key.code in _VAGUE_CODES and self._key.exception in _VAGUE_EXCEPTIONS
        )
        if not is_fatal and (is_vague or contrary):
            by_message = list(self._by_message(z, contrary))
            if by_message or contrary:
                yield from by_message
                return
            if len(self._by_template) == 1:
                # One message carries all of it, and says too little for a pattern.
                return
        if not contrary and self._is_enough(self._whole, z):
            yield self._change(self._whole), self._whole, ""

    def _by_message(self, z: float, contrary: list[ErrorCount]) -> Iterator[tuple[AddRule, ErrorCount, str]]:
        for template, count in self._by_template.items():
            if not self._is_enough(count, z):
                continue
            pattern = pattern_of(template, count.samples)
            is_theirs = any(is_found_safely(pattern, each) for one in contrary for each in one.samples)
            if pattern and not is_theirs:
                yield self._change(count, pattern), count, written(template)

    def _is_contrary(self, count: ErrorCount) -> bool:
        """Whether this message is one that people let fail, or whose retries do not work."""
        retried, decided = count.decided()
        worked, tried = count.worked()
        return decided >= RUNS_MIN and (retried < SHARE_MIN * decided or worked < SHARE_MIN * tried)

    def _is_enough(self, count: ErrorCount, z: float) -> bool:
        retried, decided = count.decided()
        worked, tried = count.worked()
        if tried < RUNS_MIN or (is_risky_to_repeat(self._step) and count.total("agents")):
            # A step with side effects is retried only if people themselves did exactly that.
            return False
        says_retry, works = wilson_bounds(retried, decided, z)[0], wilson_bounds(worked, tried, z)[0]
        return says_retry >= SHARE_MIN and works >= SHARE_MIN

    def _change(self, count: ErrorCount, pattern: str = "") -> AddRule:
        retries = max(1, min(RETRIES_MAX, int(quantile(count.tries, COVERED))))
        delay = _as_delay(median(count.waits))
        if pattern:
            return AddRule(self._name, retries, delay, pattern=pattern)
        if self._key.code == "EXIT_NONZERO" and self._key.exit_code is not None:
            return AddRule(self._name, retries, delay, exit_codes=(self._key.exit_code,))
        if self._key.exception:
            return AddRule(self._name, retries, delay, exceptions=(self._key.exception,))
        return AddRule(self._name, retries, delay, codes=(self._key.code,))

    # -- words -------------------------------------------------------------------------------------------------------

    def _proposal(self, change: AddRule, count: ErrorCount, z: float, message: str) -> Proposal:
        retried, worked, agents = count.total("retried"), count.total("worked"), count.total("agents")
        wait = median(count.waits)
        who = "people" if not agents else "agents" if agents >= retried else "people and agents"
        with_message = f' and the message "{message}"' if message else ""
        evidence = (
            f"'{self._name}' failed {_times(count.total('failures'))} in {len(count.by_run):,} runs with "
            f"{describe_error(self._key)}{with_message}; "
            f"{who} said retry {_times(retried)}, {worked:,} of these worked, after a median of {format_duration(wait)}"
        )
        delay = f", {written_duration(change.delay)} after a failure" if change.delay else ""
        often = "once" if change.max_retries == 1 else f"up to {_times(change.max_retries)}"
        proposal = f"retry {describe_rule(change.rule)} {often}{delay}"
        lost = sum(max(0.0, one - change.delay) for one in count.waits)
        return Proposal(
            workflow=self._workflow,
            step=self._name,
            kind="retry",
            evidence=evidence,
            proposal=proposal,
            counted=Counted(
                runs=len(count.by_run),
                run_ids=tuple(list(count.by_run)[:RUN_IDS_MAX]),
                failures=count.total("failures"),
                decided=retried + count.total("let_fail"),
                by_agents=agents or None,
                retried=retried,
                worked=worked,
                median_wait_seconds=round(wait, 3),
                share_bound=_rounded(wilson_bounds(*count.worked(), z)[0]),
                message=message or None,
                first=_moment(count.first),
                last=_moment(count.last),
            ),
            saving=Saving(worked, count.total("lost_runs"), round(lost, 3)),
            change=change,
        )

    def _nearly(self, z: float) -> Nearly:
        count = self._whole
        retried, worked = count.total("retried"), count.total("worked")
        runs = count.worked()[1]
        seen = (
            f"'{self._name}' with {describe_error(self._key)}: retried {_times(retried)} in {pluralize(runs, 'run')}, "
            f"{worked:,} of these worked"
        )
        enough = max(RUNS_MIN, math.ceil(SHARE_MIN / (1 - SHARE_MIN) * z * z))
        needed = f"a retry that works each time, in {enough} runs; more runs if it works less often"
        return Nearly(self._workflow, self._name, seen, needed, runs)


def describe_error(key: ErrorKey) -> str:
    """`exit code 11`, the class of an exception, or the error code."""
    if key.code == "EXIT_NONZERO" and key.exit_code is not None:
        return f"exit code {key.exit_code}"
    return key.exception or key.code


def _as_delay(seconds: float) -> float:
    """The delay that people would write: the next longer one, at most an hour."""
    return next((delay for delay in _DELAYS if round(seconds) <= delay), _DELAYS[-1])


def _times(number: int) -> str:
    return "once" if number == 1 else "twice" if number == 2 else f"{number:,} times"


def _rounded(share: float) -> float:
    return math.floor(share * 1000) / 1000


def _moment(at: datetime | None) -> datetime | None:
    return at.replace(microsecond=0) if at is not None else None
