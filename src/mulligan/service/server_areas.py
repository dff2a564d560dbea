"""The areas of `Service` that a server asks for, and that need nothing but its store."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from mulligan.service.lazy_modules import LazyModule

if TYPE_CHECKING:
    from mulligan.service import audit, inbox, logins, server_changes, trends
    from mulligan.service.audit import AuditLog
    from mulligan.service.inbox import Inbox
    from mulligan.service.logins import Logins
    from mulligan.service.run_reader import RunReader
    from mulligan.service.telemetry import telemetry
    from mulligan.service.telemetry.telemetry import Telemetry
    from mulligan.service.tokens import tokens
    from mulligan.service.tokens.tokens import Tokens
    from mulligan.service.trends import Trends
else:
    audit, logins = LazyModule("mulligan.service.audit"), LazyModule("mulligan.service.logins")
    inbox = LazyModule("mulligan.service.inbox")
    server_changes = LazyModule("mulligan.service.server_changes")
    telemetry = LazyModule("mulligan.service.telemetry.telemetry")
    tokens = LazyModule("mulligan.service.tokens.tokens")
    trends = LazyModule("mulligan.service.trends")


class ServerAreas:
    """Each area is an object of its own, made when it is first asked for."""

    reader: RunReader

    if TYPE_CHECKING:
        # Of `Service`.
        @property
        def by(self) -> str: ...

        def now(self) -> datetime: ...

    @cached_property
    def audit(self) -> AuditLog:
        """Who changed what through a server."""
        return audit.AuditLog(self.reader)

    @cached_property
    def inbox(self) -> Inbox:
        """Single things that wait for a person, with what helps to decide."""
        return inbox.Inbox(self.reader)

    @cached_property
    def logins(self) -> Logins:
        """Links and sessions for browsers."""
        return logins.Logins(self.reader)

    @cached_property
    def tokens(self) -> Tokens:
        """Who may do what with a server."""
        kind = server_changes.RemoteTokens if self.reader.home.is_remote else tokens.Tokens
        return kind(self.reader, lambda: self.by, self.now)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Metrics and traces."""
        return telemetry.Telemetry(self.reader)

    @cached_property
    def trends(self) -> Trends:
        """What many runs together say."""
        return trends.Trends(self.reader)
