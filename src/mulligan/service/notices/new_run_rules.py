"""The rules of a project that are pinned with a new run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from mulligan.service.home_names import config_file

if TYPE_CHECKING:
    from mulligan.core.model.workflow import NoticeRule
    from mulligan.service.home import Home
    from mulligan.service.notices.notices import Notices


class StartsRuns(Protocol):
    """A `Service`, as far as this needs it."""

    @property
    def home(self) -> Home: ...

    @property
    def is_for_others(self) -> bool: ...

    @property
    def notices(self) -> Notices: ...


def rules_for_new_runs(service: StartsRuns) -> tuple[NoticeRule, ...]:
    """The rules of the project. Only a server has set some, so a home without one is not asked."""
    home = service.home
    may_have_some = service.is_for_others or home.store_url or os.path.exists(config_file(home.folder))
    return service.notices.rules_for_new_runs() if may_have_some else ()
