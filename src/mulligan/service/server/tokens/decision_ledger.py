"""Decisions of a token in the audit: a row for each, written before it reaches the run, and counted against its limit.

Decisions are counted where they reach a run, so it does not matter which route or tool they came through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlencode

from msgspec.structs import replace

from mulligan.core.model.agents.guard_rails import verdict_of
from mulligan.core.model.reports import ApprovalGiven, Classified, Report, RetryRequested
from mulligan.core.model.text.formatting import pluralize
from mulligan.errors import MulliganError, TooManyDecisions
from mulligan.ports import AuditRecord, TokenLimits
from mulligan.service.server.audit import ACCEPTED, AuditLog

_HOUR = timedelta(hours=1)
# What the decisions of agents are called in the audit: of the tools with the scope `decide`.
KEPT_APPROVAL = "keep approval"
TOOL_DECISIONS = ("MCP approve", "MCP classify", "MCP classify_and_resolve_failures")


class DecisionLedger:
    """The decisions of one request. `row` has what is known of it: who asks, through what, from where."""

    def __init__(
        self,
        audit: AuditLog,
        row: AuditRecord,
        limits: TokenLimits,
        actions: Collection[str],
        now: Callable[[], datetime],
        *,
        has_row: bool = False,
    ) -> None:
        """`has_row`: the request has a row in the audit already, as one that starts or retries a run."""
        self._audit, self._row, self._limits, self._now = audit, row, limits, now
        # All that count against the limit.
        self._actions = (*actions, *TOOL_DECISIONS, KEPT_APPROVAL)
        self._has_row = has_row
        # The refusals that have a row already.
        self.refused: list[MulliganError] = []

    def begin(self, run_id: int, report: Report) -> None:
        """Write the row of a decision that is about to be made. `TooManyDecisions` if it would be one too many.

        Reports that are no request of somebody are left alone.
        """
        if self._has_row or not isinstance(report, Classified | ApprovalGiven | RetryRequested):
            return
        step = getattr(report, "step", "") or getattr(report, "place", "")
        self._write([self._about(run_id, step, verdict_of(report) or "retry", ACCEPTED, report.reason)])

    def keep(self, run_id: int, approvals: Sequence[str], reason: str = "") -> None:
        """Write a row for each approval of this run that another run or round keeps; as `begin`."""
        rows = (self._about(run_id, step, "approve", ACCEPTED, reason) for step in approvals)
        self._write([replace(row, action=KEPT_APPROVAL) for row in rows])

    def _write(self, rows: Sequence[AuditRecord]) -> None:
        limit = self._limits.decisions_per_hour
        if limit is None:
            self._audit.add(rows)
        elif rows and not self._audit.add_within(
            rows, actions=self._actions, since=rows[0].at - _HOUR, count_max=limit
        ):
            raise TooManyDecisions(
                f"this token may make {pluralize(limit, 'decision')} an hour",
                hint="leave it to a person, or wait",
                retry_after=int(_HOUR.total_seconds()),
                decisions_per_hour=limit,
            )

    def refuse(self, run_id: int, step: str, verdict: str, reason: str, error: MulliganError) -> None:
        """Write the row of one of several decisions that was refused: what was wanted, and why not."""
        self.refused.append(error)
        self._audit.add([self._about(run_id, step, verdict, error.http_status, f"{error.code}: {reason}")])

    def _about(self, run_id: int, step: str, verdict: str, status: int, why: str) -> AuditRecord:
        about = urlencode({"run_id": run_id, "step": step, "verdict": verdict}, safe="[]")
        return replace(self._row, at=self._now(), target=f"{self._row.target}?{about}", status=status, why=why)
