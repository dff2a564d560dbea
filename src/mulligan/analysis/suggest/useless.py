"""Finds what was tried again and again and never helped: retry rules, handlers, remediations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mulligan.analysis.statistics import wilson_bounds
from mulligan.analysis.suggest.changes import Change, RemoveRule, steps_by_name
from mulligan.analysis.suggest.evidence import RUN_IDS_MAX, Evidence, StepEvidence, Tried, definition
from mulligan.analysis.suggest.proposals import RUNS_MIN, Answer, Counted, Kind, Nearly, Proposal, Question, Saving
from mulligan.core.deciding.conditions import describe_rule, matching_rule
from mulligan.core.model.text.formatting import format_duration, pluralize
from mulligan.core.model.workflow import Step, Workflow

# Something that works in fewer than a quarter of the runs is not worth its time; see also the page "Recovery".
SHARE_MAX = 0.25


def useless_questions(evidence: Evidence, workflow: Workflow) -> Iterator[Question]:
    """One look for each rule, handler and remediation that the workflow has and that was tried."""
    by_name = steps_by_name(workflow)
    for name, of_step in evidence.steps.items():
        for step in by_name.get(name, [])[:1]:
            yield from _of_step(evidence.workflow, name, step, of_step)


def _of_step(workflow: str, name: str, step: Step, of_step: StepEvidence) -> Iterator[Question]:
    for index, rule in enumerate(step.rules):
        if tried := of_step.rules.get(definition(rule)):
            advice, change = "remove the rule", RemoveRule(name, index)
            what = f"the retry rule for {describe_rule(rule)} of '{name}'"
            if later := _worked_later(of_step, step, index):
                advice = f"give it a longer delay: later retries that people decided worked {later:,} times"
            look = _Look(workflow, name, "useless_rule", what, advice, tried, None if later else change)
            yield Question(1, look.answer)
    if step.on_failure is not None and (tried := of_step.handlers.get(definition(step.on_failure))):
        what, advice = f"the {step.on_failure.strategy} handler of '{name}'", "mend or remove the handler"
        yield Question(1, _Look(workflow, name, "useless_handler", what, advice, tried).answer)
    for to in dict.fromkeys(edge.to for edge in step.edges if edge.on == "failure"):
        if tried := of_step.remediations.get(to):
            what = f"'{to}', where failures of '{name}' are routed,"
            yield Question(1, _Look(workflow, name, "useless_remediation", what, f"mend '{to}'", tried).answer)


def _worked_later(of_step: StepEvidence, step: Step, index: int) -> int:
    """How often a retry worked that people decided on after the rule had given up."""
    found = 0
    for count in of_step.errors.values():
        if count.example is not None and matching_rule(step.rules, count.example) == index:
            found += count.total("worked")
    return found


class _Look(NamedTuple):
    """Something that was tried, what is said about it, and what to do if it never helped."""

    workflow: str
    name: str
    kind: Kind
    what: str
    advice: str
    tried: Tried
    # None: somebody has to look why it fails.
    change: Change | None = None

    def answer(self, z: float) -> Answer:
        tried, runs = self.tried, len(self.tried.by_run)
        if tried.worked or runs < RUNS_MIN:
            return []
        bound = wilson_bounds(tried.runs_worked, runs, z)[1]
        seen = f"{self.what} was tried {tried.tried:,} times in {pluralize(runs, 'run')} and never helped"
        if bound > SHARE_MAX:
            enough = int((1 - SHARE_MAX) / SHARE_MAX * z * z) + 1
            return [Nearly(self.workflow, self.name, seen, f"the same in {enough} runs", runs)]
        proposal = Proposal(
            workflow=self.workflow,
            step=self.name,
            kind=self.kind,
            evidence=seen + (f"; that took {format_duration(tried.seconds)}" if tried.seconds >= 1 else ""),
            proposal=self.advice,
            counted=Counted(
                runs=runs,
                run_ids=tuple(list(tried.by_run)[:RUN_IDS_MAX]),
                tried=tried.tried,
                worked=0,
                share_bound=round(bound, 3),
            ),
            saving=Saving(seconds=round(tried.seconds, 3)),
            change=self.change,
        )
        return [proposal]
