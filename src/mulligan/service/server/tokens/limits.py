"""A store for a token with limits: it starts and changes runs of some workflows alone, and decides what it may."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from mulligan.core.deciding.rounds.child_rounds import asked_round, planned_children
from mulligan.core.deciding.rounds.kept_approvals import approvals_among, approvals_given, approvals_relied_on
from mulligan.core.deciding.workers.breaker import Verdict
from mulligan.core.effects.run_lists import QueuedShape
from mulligan.core.effects.snapshot import restore
from mulligan.core.model.agents.guard_rails import refuse_beyond, refuse_keeping
from mulligan.core.model.event_types import ChildRound
from mulligan.core.model.graph import Graph
from mulligan.core.model.kept_history import kept_history
from mulligan.core.model.reports import Report, RetryRequested
from mulligan.core.model.scopes import allows
from mulligan.core.model.workflow import Breaker, decode
from mulligan.core.turn import fold
from mulligan.errors import MulliganError, ScopeMissing
from mulligan.ports import AuditRecord, NewRun, RunRecord, Store, TokenRecord, Turn
from mulligan.service.runs.changes.corrections import plan_next_round
from mulligan.service.server.tokens.decision_ledger import DecisionLedger


def kept_by_run(run: NewRun) -> list[str]:
    """The steps of a new run in which a person was asked in the run that it is forked from."""
    request = run.request
    if request.history:
        return approvals_given(fold(decode(run.workflow), kept_history(request)))
    return approvals_among((one.step for one in request.kept), Graph(decode(run.workflow))) if request.kept else []


def kept_by_round(store: Store, run_id: int, report: RetryRequested) -> Iterator[str]:
    """The approvals that the next round keeps and relies on, also those of child runs that it continues."""
    loaded = store.load(run_id)
    found = plan_next_round(restore(decode(loaded.workflow), loaded.rows), report)
    graph, steps = found.state.graph, frozenset(found.round.steps)
    yield from approvals_relied_on(graph, (name for name in graph.nodes if name not in steps), steps)
    for child in planned_children(found.state, report, steps):
        if not child.why_new:
            is_named = report.child is not None and report.child.run_id == child.run_id
            asked = report.child if is_named else None
            request = asked_round(report, asked or ChildRound(child.place, child.run_id, 0))
            yield from (f"{child.place}: {name}" for name in kept_by_round(store, child.run_id, request))


def limited(store: Store, token: TokenRecord, ledger: DecisionLedger | None = None) -> Store:
    """The store within the limits of the token. Decisions are written into the ledger."""
    return cast(Store, LimitedStore(store, token, ledger))


class LimitedStore:
    """All that `of` does. What changes runs is checked first."""

    def __init__(self, of: Store, token: TokenRecord, ledger: DecisionLedger | None) -> None:
        self._of, self._limits, self._workflows = of, token.limits, token.limits.workflows
        self._may_decide = allows(token.scopes, "decide")
        self._may_approve = self._may_decide and "approve" in (token.limits.verdicts or ("approve",))
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        for run in runs:
            self._check(run.name)
            self._keep(run.request.forked_from or 0, kept_by_run(run), run.request.reason)
        return self._of.create(runs, holder, audit=audit)

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        if self._workflows:
            self._check(self._root(run_id).workflow)
        refuse_beyond(report, self._limits.verdicts, self._limits.min_confidence)
        if isinstance(report, RetryRequested) and (self._limits.verdicts or report.revised is not None):
            try:
                kept = [*kept_by_round(self._of, run_id, report)]
            except MulliganError:
                if not self._may_approve:
                    raise
                # The run refuses it as well, unless it has changed until then.
                kept = []
            self._keep(run_id, kept, report.reason)
        if self._ledger is not None:
            self._ledger.begin(run_id, report)
        return self._of.put(run_id, report, is_asking=is_asking)

    def _keep(self, run_id: int, approvals: Sequence[str], reason: str) -> None:
        """Keep what a person has approved: a decision like the approval itself."""
        for name in approvals:
            refuse_keeping(name, self._limits.verdicts, may_decide=self._may_decide)
        if self._ledger is not None:
            self._ledger.keep(run_id, approvals, reason)

    def reset_breaker(self, name: str) -> bool:
        """Refused with a limit on workflows: a breaker holds back tasks of all of them."""
        self._check_all("a circuit breaker is shared by all workflows")
        return self._of.reset_breaker(name)

    def count_outcome(self, name: str, rules: Breaker, verdict: Verdict) -> None:
        self._check_all("a circuit breaker is shared by all workflows")
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
