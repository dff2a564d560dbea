"""What a face of a server asks for beside runs: workflows, schedules, tokens, audit. Each is an object of its own."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mulligan.service.lazy_modules import LazyModule
from mulligan.service.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.service import store_calls
    from mulligan.service.catalogue import catalogue
    from mulligan.service.catalogue.catalogue import Catalogue
    from mulligan.service.run_control import RunControl
    from mulligan.service.schedules import schedules
    from mulligan.service.schedules.schedules import Schedules
    from mulligan.service.store_calls import StoreCalls
    from mulligan.service.telemetry import telemetry
    from mulligan.service.telemetry.telemetry import Telemetry
    from mulligan.service.tokens import audit, tokens
    from mulligan.service.tokens.audit import AuditLog
    from mulligan.service.tokens.tokens import Tokens
else:
    store_calls = LazyModule("mulligan.service.store_calls")
    catalogue = LazyModule("mulligan.service.catalogue.catalogue")
    schedules = LazyModule("mulligan.service.schedules.schedules")
    telemetry = LazyModule("mulligan.service.telemetry.telemetry")
    audit = LazyModule("mulligan.service.tokens.audit")
    tokens = LazyModule("mulligan.service.tokens.tokens")


class ServerVerbs:
    """The objects of `Service` that a server needs."""

    if TYPE_CHECKING:
        # Of `Service`.
        reader: RunReader
        project: str

        @property
        def by(self) -> str: ...

        @cached_property
        def control(self) -> RunControl: ...

        def now(self) -> datetime: ...

        def in_the_name_of(self, by: str, *, project: str | None = None) -> Any: ...

    @cached_property
    def tokens(self) -> Tokens:
        """Who may do what with a server."""
        return tokens.Tokens(self.reader, self.by, self.now)

    @cached_property
    def audit(self) -> AuditLog:
        """Which changes were asked of a server."""
        return audit.AuditLog(self.reader, self.by, self.now)

    @cached_property
    def store_calls(self) -> StoreCalls:
        """The calls of a store over HTTP."""
        return store_calls.StoreCalls(self.control)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Metrics and traces."""
        return telemetry.Telemetry(self.reader)

    @cached_property
    def catalogue(self) -> Catalogue:
        """Published workflows and drafts."""
        return catalogue.Catalogue(self.reader, self.by, self.project, self.now, lambda: self.schedules)

    @cached_property
    def schedules(self) -> Schedules:
        """Published workflows that are started on time."""

        def in_project(by: str, project: str) -> Any:
            return self.in_the_name_of(by, project=project)

        return schedules.Schedules(self.reader, self.by, self.project, self.now, in_project)
