"""Proposes a circuit breaker where a step keeps failing in the same way, in run after run, until a service is back.

An *outage* is a row of failures with one error and no success between them, in several runs. Some rows come about by
chance: how many is known from how often the step fails at all. Only a step with clearly more outages gets a breaker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby

import msgspec

from mulligan.analysis.statistics import at_least_by_chance, chance_of, median
from mulligan.analysis.suggest.changes import AddBreaker, steps_by_name
from mulligan.analysis.suggest.evidence import RUN_IDS_MAX, ErrorKey, Evidence
from mulligan.analysis.suggest.proposals import RUNS_MIN, Answer, Counted, Proposal, Question, Saving
from mulligan.analysis.suggest.retries import describe_error
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import CODES
from mulligan.core.model.text.formatting import format_duration
from mulligan.core.model.workflow import Step, Workflow

# An outage: this many runs in a row fail, none of them longer after the one before than this.
ROW_MIN, GAP = 5, timedelta(minutes=15)
# How many outages, and how many attempts in them that a breaker would have held back.
OUTAGES_MIN, HELD_BACK_MIN = 3, 10
FAILURES, RESET_SECONDS = 5, (30.0, 600.0)
# Codes and exit codes that can mean that a service is away. A step's own codes can mean it too.
_OF_SERVICES = frozenset({"CONNECTION", "HTTP_5XX", "HTTP_429", "TIMEOUT"})
_VAGUE_EXIT_CODES = frozenset({1, 2, 126, 127, 255})


def breaker_questions(evidence: Evidence, workflow: Workflow) -> Iterator[Question]:
    """One look for each step without a breaker and each error that can mean that a service is away."""
    by_name = steps_by_name(workflow)
    for name, of_step in evidence.steps.items():
        for step in by_name.get(name, [])[:1]:
            if step.breaker is not None or not _may_have_breaker(step):
                continue
            attempts = sorted(of_step.attempts, key=lambda one: (one[0], one[1]))
            for key in sorted({one[2] for one in attempts if one[2] is not None and _is_of_service(one[2])}, key=str):
                look = _Look(evidence.workflow, name, workflow, key, list(_rows(attempts, key)))
                if look.outages:
                    yield Question(1, look.answer)


def _may_have_breaker(step: Step) -> bool:
    action = traits_of(step.action)
    return action.runs_in != "engine" and not action.opens_worktrees and step.map is None


def _is_of_service(key: ErrorKey) -> bool:
    if key.code == "EXIT_NONZERO":
        return key.exit_code is not None and key.exit_code not in _VAGUE_EXIT_CODES
    return key.code in _OF_SERVICES or key.code not in CODES


class _Row(msgspec.Struct, frozen=True):
    """Attempts one after the other that all failed with one error, or that all did not."""

    has_error: bool
    # In how many runs, one after the other; the attempts of one run in a row count once.
    length: int
    attempts: int
    run_ids: tuple[int, ...]
    begin: datetime
    end: datetime


def _rows(attempts: list[tuple[datetime, int, ErrorKey | None]], key: ErrorKey) -> Iterator[_Row]:
    """The attempts in rows of equal outcome. A long gap ends a row of failures."""

    def outcome(one: tuple[int, tuple[datetime, int, ErrorKey | None]]) -> tuple[bool, int]:
        return one[1][2] == key, blocks[one[0]]

    blocks, block = [], 0
    for number, one in enumerate(attempts):
        block += number > 0 and one[0] - attempts[number - 1][0] > GAP
        blocks.append(block)
    for (has_error, _), group in groupby(enumerate(attempts), outcome):
        some = [one for _, one in group]
        runs = [run_id for run_id, _ in groupby(one[1] for one in some)]
        yield _Row(has_error, len(runs), len(some), tuple(dict.fromkeys(runs)), some[0][0], some[-1][0])


class _Look:
    def __init__(self, workflow: str, name: str, definition: Workflow, key: ErrorKey, rows: list[_Row]) -> None:
        self._workflow, self._name, self._definition, self._key, self._rows = workflow, name, definition, key, rows
        last = rows[-1] if rows else None
        # A row that has not ended may be a mistake that nobody has mended yet.
        self.outages = [
            one
            for one in rows
            if one.has_error and one.length >= ROW_MIN and len(one.run_ids) >= RUNS_MIN and one is not last
        ]

    def answer(self, z: float) -> Answer:
        units = sum(one.length for one in self._rows)
        share = sum(one.length for one in self._rows if one.has_error) / units
        by_chance = at_least_by_chance(len(self.outages), units * (1 - share) * share**ROW_MIN)
        attempts = sum(one.attempts for one in self.outages)
        held_back = attempts - FAILURES * len(self.outages)
        if len(self.outages) < OUTAGES_MIN or held_back < HELD_BACK_MIN or by_chance > chance_of(z):
            return []
        lengths = [(one.end - one.begin).total_seconds() for one in self.outages]
        reset = round(min(max(median(lengths) / 4, RESET_SECONDS[0]), RESET_SECONDS[1]) / 30) * 30.0
        change = AddBreaker(self._name, _free_name(self._name, self._definition), FAILURES, reset)
        run_ids = tuple(dict.fromkeys(run_id for one in self.outages for run_id in one.run_ids))
        proposal = Proposal(
            workflow=self._workflow,
            step=self._name,
            kind="breaker",
            evidence=f"'{self._name}' had {len(self.outages)} outages with {describe_error(self._key)}: {attempts:,} "
            f"attempts failed in {len(run_ids):,} runs, with no success between them, for a median of "
            f"{format_duration(median(lengths))}",
            proposal=f"guard it with a circuit breaker that opens after {FAILURES} failures",
            counted=Counted(
                runs=len(run_ids),
                run_ids=tuple(sorted(run_ids, reverse=True)[:RUN_IDS_MAX]),
                outages=len(self.outages),
                attempts_in_outages=attempts,
                first=self.outages[0].begin.replace(microsecond=0),
                last=self.outages[-1].end.replace(microsecond=0),
            ),
            saving=Saving(seconds=0.0),
            change=change,
        )
        return [proposal]


def _free_name(step: str, definition: Workflow) -> str:
    """A name for the breaker that the workflow does not use yet."""
    name = re.sub(r"\W+", "_", step, flags=re.ASCII).strip("_") or "service"
    return name if name not in definition.breakers else f"{name}_service"
