"""What a proposal is: the change, the evidence for it, and what it would have saved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from mulligan.analysis.suggest.changes import AddRule, Change, RemoveRule

# Whatever the figures say, less than this is no evidence: in so many different runs.
RUNS_MIN = 3

Kind = Literal["retry", "memory", "timeout", "useless_rule", "useless_handler", "useless_remediation", "breaker"]


class Saving(msgspec.Struct, frozen=True, order=True):
    """What it would have saved in the runs that were looked at: decisions by people, failed rounds, time."""

    decisions: int = 0
    failed_runs: int = 0
    seconds: float = 0.0


class Counted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures behind a proposal. What does not belong to its kind is left out."""

    # In how many runs it was seen, and some of them, the newest first.
    runs: int
    run_ids: tuple[int, ...]
    failures: int | None = None
    # Cases that people or agents decided, those that they retried, and those in which the retry worked.
    decided: int | None = None
    by_agents: int | None = None
    retried: int | None = None
    worked: int | None = None
    median_wait_seconds: float | None = None
    # How often a rule, a handler or a remediation was tried.
    tried: int | None = None
    # Outages in which a step kept failing, and the attempts in them.
    outages: int | None = None
    attempts_in_outages: int | None = None
    # The share that worked is at least, or at most, this: with the certainty that the whole answer has.
    share_bound: float | None = None
    # The message without what varies. It quotes what a step printed.
    message: str | None = None
    first: datetime | None = None
    last: datetime | None = None


class Proposal(msgspec.Struct, frozen=True):
    """One proposed change of a workflow."""

    workflow: str
    step: str
    kind: Kind
    # One sentence: what was seen. Then what is proposed.
    evidence: str
    proposal: str
    counted: Counted
    saving: Saving
    # None if there is nothing to write: somebody has to look.
    change: Change | None = None

    @property
    def id(self) -> str:
        """The same for the same proposal, whenever it is made: delays and limits may change with further runs."""
        change = self.change
        which: object = None
        if isinstance(change, AddRule):
            which = (change.codes, change.exit_codes, change.pattern, *change.exceptions)
        elif isinstance(change, RemoveRule):
            which = change.index
        elif self.kind == "useless_remediation":
            which = self.proposal
        return hashlib.sha256(msgspec.json.encode((self.workflow, self.step, self.kind, which))).hexdigest()[:8]


class Nearly(msgspec.Struct, frozen=True):
    """Something for which there is too little evidence: what was seen, and what would be enough."""

    workflow: str
    step: str
    seen: str
    needed: str
    # In how many runs it was seen.
    runs: int


# What one look at a step gives.
Answer = list[Proposal | Nearly]


class Question(NamedTuple):
    """One or several looks at a step.

    All looks are counted before the first is answered: the more there are, the more proof each needs. `answer` gets the
    standard deviations by which the evidence must differ from chance.
    """

    looks: int
    answer: Callable[[float], Answer]
