"""The areas of `Service` that a server asks for, and that need nothing but its store."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from mulligan.service.lazy_modules import LazyModule

if TYPE_CHECKING:
    from mulligan.service import audit, logins, run_views, server_changes
    from mulligan.service.audit import AuditLog
    from mulligan.service.catalogue.catalogue import Catalogue
    from mulligan.service.logins import Logins
    from mulligan.service.run_cache import RunCache
    from mulligan.service.run_reader import RunReader
    from mulligan.service.run_views import RunViews
    from mulligan.service.telemetry import telemetry
    from mulligan.service.telemetry.telemetry import Telemetry
    from mulligan.service.tokens import tokens
    from mulligan.service.tokens.tokens import Tokens
else:
    audit, logins = LazyModule("mulligan.service.audit"), LazyModule("mulligan.service.logins")
    run_views = LazyModule("mulligan.service.run_views")
    server_changes = LazyModule("mulligan.service.server_changes")
    telemetry = LazyModule("mulligan.service.telemetry.telemetry")
    tokens = LazyModule("mulligan.service.tokens.tokens")


class ServerAreas:
    """Each area is an object of its own, made when it is first asked for."""

    reader: RunReader

    if TYPE_CHECKING:
        # Of `Service`.
        @property
        def by(self) -> str: ...

        @cached_property
        def cache(self) -> RunCache: ...

        @cached_property
        def catalogue(self) -> Catalogue: ...

        def now(self) -> datetime: ...

    @cached_property
    def audit(self) -> AuditLog:
        """Who changed what through a server."""
        return audit.AuditLog(self.reader)

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
    def views(self) -> RunViews:
        """Runs as pages show them: graph, grid, events in words, two runs beside each other."""
        return run_views.RunViews(self.reader, self.cache, lambda: self.catalogue)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Metrics and traces."""
        return telemetry.Telemetry(self.reader)
