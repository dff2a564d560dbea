"""The rules of a project that are pinned with a new run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mulligan.service.home_names import HOOKS_MARK

if TYPE_CHECKING:
    from mulligan.core.model.workflow import NoticeRule
    from mulligan.service.home import Home
    from mulligan.service.server.notices.notices import Notices


class StartsRuns(Protocol):
    """A `Service`, as far as this needs it."""

    @property
    def home(self) -> Home: ...

    @property
    def is_for_others(self) -> bool: ...

    @property
    def notices(self) -> Notices: ...


def rules_for_new_runs(service: StartsRuns) -> tuple[NoticeRule, ...]:
    """The rules of the project. Looking for them takes longer than starting a run, so few homes are asked."""
    home = service.home
    may_have_some = service.is_for_others or home.store_url or (home.folder / HOOKS_MARK).exists()
    return service.notices.rules_for_new_runs() if may_have_some else ()
