"""A store for a token with limits: it starts and changes runs of some workflows alone, and decides what it may."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from mulligan.core.deciding.breaker import Verdict
from mulligan.core.effects.run_lists import QueuedShape
from mulligan.core.model.guard_rails import refuse_beyond
from mulligan.core.model.reports import Report
from mulligan.core.model.workflow import Breaker
from mulligan.errors import ScopeMissing
from mulligan.ports import AuditRecord, NewRun, RunRecord, Store, TokenLimits, TokenRecord, Turn
from mulligan.service.tokens.decision_ledger import DecisionLedger


def limited(store: Store, token: TokenRecord, ledger: DecisionLedger | None = None) -> Store:
    """The store within the limits of the token. Decisions are written into the ledger."""
    return cast(Store, LimitedStore(store, token.limits, ledger))


class LimitedStore:
    """All that `of` does. What changes runs is checked first."""

    def __init__(self, of: Store, limits: TokenLimits, ledger: DecisionLedger | None) -> None:
        self._of, self._limits, self._workflows = of, limits, limits.workflows
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        for run in runs:
            self._check(run.name)
        return self._of.create(runs, holder, audit=audit)

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        if self._workflows:
            self._check(self._root(run_id).workflow)
        refuse_beyond(report, self._limits.verdicts, self._limits.min_confidence)
        if self._ledger is not None:
            self._ledger.begin(run_id, report)
        return self._of.put(run_id, report, is_asking=is_asking)

    def reset_breaker(self, name: str) -> bool:
        """Refused with a limit on workflows: a breaker holds back tasks of all of them."""
        self._check_all("a circuit breaker is for those of all workflows")
        return self._of.reset_breaker(name)

    def count_outcome(self, name: str, rules: Breaker, verdict: Verdict) -> None:
        self._check_all("a circuit breaker is for those of all workflows")
        self._of.count_outcome(name, rules, verdict)

    def refuse_queued(self, shape: QueuedShape, message: str, project: str | None = None) -> int:
        self._check_all("the queue has tasks of all workflows")
        return self._of.refuse_queued(shape, message, project)

    def remove(self, root_run_ids: Collection[int], *, is_forced: bool = False) -> list[int]:
        for record in self._of.lists.records(root_run_ids) if self._workflows else ():
            self._check(record.workflow)
        return self._of.remove(root_run_ids, is_forced=is_forced)

    def _check_all(self, why: str) -> None:
        """Refused with a limit on workflows."""
        if self._workflows:
            names = ", ".join(f"'{one}'" for one in self._workflows)
            raise ScopeMissing(f"this token is for runs of {names}, and {why}", hint="use a token without this limit")

    def _root(self, run_id: int) -> RunRecord:
        record = self._of.run(run_id)
        return record if record.root_run_id in (0, run_id) else self._of.run(record.root_run_id)

    def _check(self, workflow: str) -> None:
        if self._workflows and workflow not in self._workflows:
            names = ", ".join(f"'{one}'" for one in self._workflows)
            raise ScopeMissing(
                f"this token is for runs of {names}, not of '{workflow}'",
                hint="use a token without this limit",
                workflow=workflow,
            )
