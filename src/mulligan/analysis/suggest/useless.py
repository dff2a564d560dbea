"""Finds what was tried again and again and never helped: retry rules, handlers, remediations."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.analysis.suggest.changes import Change, RemoveRule, steps_by_name
from mulligan.analysis.suggest.evidence import RUN_IDS_MAX, Evidence, StepEvidence, Tried, definition
from mulligan.analysis.suggest.proposals import RUNS_MIN, Answer, Counted, Kind, Nearly, Proposal, Question, Saving
from mulligan.analysis.suggest.statistics import wilson_bounds
from mulligan.core.deciding.conditions import describe_rule, matching_rule
from mulligan.core.model.text.formatting import format_duration, pluralize
from mulligan.core.model.workflow import Rule, Step, Workflow

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
            yield _question(_UselessRule(workflow, name, of_step, step, rule, index), tried)
    if step.on_failure is not None and (tried := of_step.handlers.get(definition(step.on_failure))):
        what = f"the {step.on_failure.strategy} handler of '{name}'"
        yield _question(_Useless(workflow, name, "useless_handler", what, "mend or remove the handler"), tried)
    for to in dict.fromkeys(edge.to for edge in step.edges if edge.on == "failure"):
        if tried := of_step.remediations.get(to):
            what = f"'{to}', where failures of '{name}' are routed,"
            yield _question(_Useless(workflow, name, "useless_remediation", what, f"mend '{to}'"), tried)


class _Useless:
    """What is said about something that never helped."""

    def __init__(self, workflow: str, name: str, kind: Kind, what: str, advice: str) -> None:
        self.workflow, self.name, self.kind, self.what, self.advice = workflow, name, kind, what, advice

    @property
    def change(self) -> Change | None:
        """Nothing: somebody has to look why it fails."""
        return None


class _UselessRule(_Useless):
    def __init__(self, workflow: str, name: str, of_step: StepEvidence, step: Step, rule: Rule, index: int) -> None:
        self._index = index
        self._worked_later = _worked_later(of_step, step, index)
        advice = "remove the rule"
        if self._worked_later:
            advice = f"give it a longer delay: later retries that people decided worked {self._worked_later:,} times"
        super().__init__(
            workflow, name, "useless_rule", f"the retry rule for {describe_rule(rule)} of '{name}'", advice
        )

    @property
    def change(self) -> Change | None:
        return None if self._worked_later else RemoveRule(self.name, self._index)


def _worked_later(of_step: StepEvidence, step: Step, index: int) -> int:
    """How often a retry worked that people decided on after the rule had given up."""
    found = 0
    for count in of_step.errors.values():
        if count.example is not None and matching_rule(step.rules, count.example) == index:
            found += count.total("worked")
    return found


def _question(about: _Useless, tried: Tried) -> Question:
    return Question(1, lambda z: _answer(about, tried, z))


def _answer(about: _Useless, tried: Tried, z: float) -> Answer:
    runs = len(tried.by_run)
    if tried.worked or runs < RUNS_MIN:
        return Answer()
    bound = wilson_bounds(tried.runs_worked, runs, z)[1]
    seen = f"{about.what} was tried {tried.tried:,} times in {pluralize(runs, 'run')} and never helped"
    if bound > SHARE_MAX:
        enough = int((1 - SHARE_MAX) / SHARE_MAX * z * z) + 1
        return Answer(nearly=[Nearly(about.workflow, about.name, seen, f"the same in {enough} runs", runs)])
    proposal = Proposal(
        workflow=about.workflow,
        step=about.name,
        kind=about.kind,
        evidence=seen + (f"; that took {format_duration(tried.seconds)}" if tried.seconds >= 1 else ""),
        proposal=about.advice,
        counted=Counted(
            runs=runs,
            run_ids=tuple(list(tried.by_run)[:RUN_IDS_MAX]),
            tried=tried.tried,
            worked=0,
            share_bound=round(bound, 3),
        ),
        saving=Saving(seconds=round(tried.seconds, 3)),
        change=about.change,
    )
    return Answer(proposals=[proposal])
