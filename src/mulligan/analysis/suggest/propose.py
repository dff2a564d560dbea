"""Proposes changes of workflows from the evidence of their runs: asks every question, then answers all of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mulligan.analysis.statistics import deviations
from mulligan.analysis.suggest.evidence import Evidence
from mulligan.analysis.suggest.limits import limit_questions
from mulligan.analysis.suggest.outages import breaker_questions
from mulligan.analysis.suggest.proposals import Nearly, Proposal
from mulligan.analysis.suggest.retries import retry_questions
from mulligan.analysis.suggest.useless import useless_questions
from mulligan.core.model.workflow import Workflow

# How many cases with too little evidence are named.
NEARLY_MAX = 5


class Proposed(msgspec.Struct, frozen=True):
    """The proposals, those that would save most first, and what had too little evidence."""

    proposals: list[Proposal]
    nearly: list[Nearly]
    # How many questions were asked: the more, the more evidence each answer needs.
    questions: int


def propose(workflows: Iterable[tuple[Evidence, Workflow]]) -> Proposed:
    """What the evidence supports, for each workflow as it is now."""
    questions = [
        question
        for evidence, workflow in workflows
        for ask in (retry_questions, limit_questions, useless_questions, breaker_questions)
        for question in ask(evidence, workflow)
    ]
    count = sum(question.looks for question in questions)
    z = deviations(count)
    answers = [one for question in questions for one in question.answer(z)]
    proposals = [one for one in answers if isinstance(one, Proposal)]
    nearly = [one for one in answers if isinstance(one, Nearly) and one.runs]
    saving = {one.id: (-one.saving.decisions, -one.saving.failed_runs, -one.saving.seconds) for one in proposals}
    proposals.sort(key=lambda one: (saving[one.id], one.workflow, one.step, one.kind, one.id))
    nearly.sort(key=lambda one: (-one.runs, one.workflow, one.step, one.seen))
    return Proposed(proposals, nearly[:NEARLY_MAX], count)
