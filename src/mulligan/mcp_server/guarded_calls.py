"""The call of a tool in the name of an agent: within its guard rails, and written into the audit.

Nothing here needs the library `mcp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from mulligan.errors import MulliganError
from mulligan.ports.server_records import TokenRecord
from mulligan.service.server.audit import ACCEPTED, audit_row, reason_of
from mulligan.service.server.tokens.decision_ledger import DecisionLedger
from mulligan.service.service import Service


@dataclass(frozen=True)
class Caller:
    """In whose name tools are called, and through what."""

    # Its user is `agent:NAME`. A local caller has one that no store has.
    token: TokenRecord
    # "stdio", or the path of the server.
    target: str
    # The address that it calls from.
    source: str = ""
    # What else in the audit counts as a decision of this token: the routes of a server.
    decisions: tuple[str, ...] = ()


@contextmanager
def guarded(
    service: Service, caller: Caller, tool: str, scope: str, arguments: object, check: Callable[[], None]
) -> Iterator[Service]:
    """The service for one call of a tool that `check` does not refuse.

    A change is written into the audit before it is made; what is refused, after it. A server keeps the audit of its own
    clients: nothing is written for a remote store.
    """
    if service.home.is_remote:
        check()
        yield service
        return
    token = caller.token
    about: dict[str, Any] = {"action": f"MCP {tool}", "target": caller.target, "source": caller.source}
    row = audit_row(token, at=service.now(), status=ACCEPTED, why=reason_of(arguments), **about)
    is_change = scope != "read" and not getattr(arguments, "dry_run", False)
    # It writes a row for each decision, and for each approval that a fork or a round keeps.
    has_row = scope != "decide"
    ledger = DecisionLedger(service.audit, row, token.limits, caller.decisions, service.now, has_row=has_row)
    try:
        check()
        if is_change and has_row:
            service.audit.add([row])
        yield service.within(token, ledger if is_change else None)
    except MulliganError as error:
        is_written = any(error is one for one in ledger.refused)
        is_worth_a_row = (is_change or error.http_status in (401, 403)) and not is_written
        if is_worth_a_row and error.http_status != 503 and service.home.is_there:
            why = f"{error.code}: {row.why}" if row.why else error.code
            service.audit.add([replace(row, at=service.now(), status=error.http_status, why=why)])
        raise
