"""The audit: rows for every change and every refusal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from mulligan.api.access.auth import NOBODY, Request
from mulligan.api.http.routing import Call, Query, Route, Routes
from mulligan.errors import MulliganError, TooManyDecisions
from mulligan.ports.server_records import AuditRecord, TokenRecord
from mulligan.service.server.audit import ACCEPTED, AuditPage, audit_row, reason_of

ROUTES = Routes()

_log = logging.getLogger("mulligan.server")


class AuditQuery(Query, frozen=True):
    """Which rows to list."""

    who: str = ""
    action: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    before: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None


@ROUTES.add("GET", "audit", "admin")
def list_audit(call: Call, query: AuditQuery) -> AuditPage:
    """Who changed what, the newest first."""
    return call.service.audit.page(
        project=call.token.project, before=query.before, limit=query.limit, who=query.who, action=query.action
    )


def is_written(route: Route, body: Any, query: Any) -> bool:
    """Whether a request changes something: a trial does not."""
    return route.changes and not (getattr(body, "dry_run", False) or getattr(query, "dry_run", False))


def accepted(call: Call, route: Route, request: Request) -> list[AuditRecord]:
    """The row of a change that is accepted."""
    if isinstance(call.body, bytes):
        about, why = _store_change(call.body)
        row = _record(route, request, call.token, call.source, ACCEPTED, why=why)
        return [msgspec.structs.replace(row, target=row.target + about)]
    return [_record(route, request, call.token, call.source, ACCEPTED, why=reason_of(call.body))]


def decision(call: Call, route: Route, request: Request) -> AuditRecord:
    """The row of a decision, without what is decided: the ledger of the service adds it."""
    return _record(route, request, call.token, call.source, ACCEPTED, why="")


def refused(
    route: Route | None, request: Request, source: str, error: MulliganError, token: TokenRecord | None
) -> Iterator[AuditRecord]:
    """The row of a refusal that somebody should see: every change, and what a token may not even read."""
    is_temporary = error.http_status in (429, 503) and not isinstance(error, TooManyDecisions)
    if route is None or is_temporary:
        return
    known = getattr(error, "token", None) or token or NOBODY
    is_limited = error.http_status == 404 and bool(known.project)
    if route.changes or error.http_status in (401, 403) or is_limited:
        yield _record(route, request, known, source, error.http_status, why=getattr(error, "why", error.code))


def _record(route: Route, request: Request, token: TokenRecord, source: str, status: int, *, why: str) -> AuditRecord:
    # Without the query, which may have the code of a link.
    about: dict[str, Any] = {"action": route.name, "target": request.path, "source": source}
    return audit_row(token, at=datetime.now(UTC), status=status, why=why, **about)


class _Report(msgspec.Struct):
    type: str = ""
    reason: str = ""


class _NewRun(msgspec.Struct):
    name: str = ""


class _StoreChange(msgspec.Struct):
    """What a change over `store/…` says that the audit should have."""

    run_id: int | None = None
    report: _Report = msgspec.field(default_factory=_Report)
    name: str = ""
    runs: list[_NewRun] = []
    root_run_ids: list[int] = []


_read_store_change = msgspec.json.Decoder(_StoreChange).decode


def _store_change(body: bytes) -> tuple[str, str]:
    """What a call of the store is about, to be written behind its path, and why."""
    try:
        found = _read_store_change(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""  # it will be refused
    named = {
        "run_id": "" if found.run_id is None else str(found.run_id),
        "report": found.report.type,
        "name": found.name,
        "workflow": ",".join(one.name for one in found.runs),
        "run_ids": ",".join(map(str, found.root_run_ids)),
    }
    about = urlencode({name: text for name, text in named.items() if text}, safe=",")
    return f"?{about}" if about else "", found.report.reason
