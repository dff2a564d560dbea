"""A store for a token with limits: it creates and changes runs of some workflows, and so many decisions an hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from mulligan.core.model.reports import ApprovalGiven, Classified, Report
from mulligan.errors import ScopeMissing, TooManyRequests
from mulligan.ports import AuditRecord, NewRun, RunRecord, Store, TokenRecord, Turn

# What a decision of a token with a limit is called in the audit.
DECISION = "decision"
_HOUR = timedelta(hours=1)


def limited(store: Store, token: TokenRecord) -> Store:
    """The store within the limits of the token."""
    return cast(Store, LimitedStore(store, token))


class LimitedStore:
    """All that `of` does. Creating a run and reporting to one are checked first."""

    def __init__(self, of: Store, token: TokenRecord) -> None:
        self._of, self._token = of, token

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def create(self, runs: Sequence[NewRun], holder: str = "") -> list[Turn]:
        for run in runs:
            self._check_workflow(run.name)
        return self._of.create(runs, holder)

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        if self._token.limits.workflows:
            self._check_workflow(self._root(run_id).workflow)
        if not isinstance(report, Classified | ApprovalGiven) or self._token.limits.decisions_per_hour is None:
            return self._of.put(run_id, report, is_asking=is_asking)
        now = self._of.now() or datetime.now(UTC)
        self._check_decisions(self._token.limits.decisions_per_hour, now)
        message_id = self._of.put(run_id, report, is_asking=is_asking)
        self._of.server_records.add_audit([self._decision(run_id, report, now)])
        return message_id

    def _root(self, run_id: int) -> RunRecord:
        record = self._of.run(run_id)
        return record if record.root_run_id in (0, run_id) else self._of.run(record.root_run_id)

    def _check_workflow(self, name: str) -> None:
        allowed = self._token.limits.workflows
        if allowed and name not in allowed:
            names = ", ".join(f"'{one}'" for one in allowed)
            raise ScopeMissing(
                f"this token is for runs of {names}, not of '{name}'",
                hint="use a token without this limit",
                workflow=name,
            )

    def _check_decisions(self, allowed: int, now: datetime) -> None:
        made = self._of.server_records.count_audit(self._token.id, [DECISION], now - _HOUR)
        if made >= allowed:
            raise TooManyRequests(
                f"this token may decide {allowed} times an hour, and has done so",
                hint="decide later, or with another token",
                retry_after=int(_HOUR.total_seconds()) if not allowed else 60,
            )

    def _decision(self, run_id: int, report: Classified | ApprovalGiven, now: datetime) -> AuditRecord:
        return AuditRecord(
            at=now,
            who=self._token.user,
            action=DECISION,
            target=f"run {run_id}",
            status=200,
            project=self._token.project or "",
            token_id=self._token.id,
            why=report.reason,
        )
