"""Turn names of other systems into valid names of ours, each used once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import END

_UNFIT = lazy_regex(r"[^A-Za-z0-9_-]")
_UNFIT_FOR_FILES = lazy_regex(r"[^A-Za-z0-9_]|^(?=\d)")
_UNFIT_FOR_POLICIES = lazy_regex(r"[^A-Za-z0-9_-]|^(?=[\d-])")
_UNFIT_FOR_DATA = lazy_regex(r"[^A-Za-z0-9_.-]|^(?=[\d.-])")


class Names:
    """Gives out names: the original where it is valid and free, otherwise a similar one."""

    def __init__(self, unfit: re.Pattern[str], taken: Iterable[str] = ()) -> None:
        self._unfit = unfit
        self.taken = set(taken)
        # The last number given to each name, so that thousands of equal names do not search from 2.
        self._numbers: dict[str, int] = {}

    @classmethod
    def of_steps(cls) -> Names:
        """Names of steps. `end` is taken: it is the step that runs last."""
        return cls(_UNFIT, (END,))

    @classmethod
    def of_files(cls) -> Names:
        """Names of files, which expressions read as a field."""
        return cls(_UNFIT_FOR_FILES)

    @classmethod
    def of_data(cls) -> Names:
        """Names of the data of a run."""
        return cls(_UNFIT_FOR_DATA)

    @classmethod
    def of_policies(cls) -> Names:
        """Names of retry policies, which start with a letter or `_`."""
        return cls(_UNFIT_FOR_POLICIES)

    def fit_all(self, names: Iterable[str]) -> dict[str, str]:
        """A name for each of these. Valid names are kept before any others are changed."""
        names = list(names)
        fitting = [name for name in names if not self._unfit.search(name) and name not in self.taken]
        self.taken.update(fitting)
        kept = set(fitting)
        return {name: name if name in kept else self.fit(name) for name in names}

    def fit(self, name: str) -> str:
        """A free name similar to this one, taken from now on."""
        stem = fitting = self._unfit.sub("_", name) or "_"
        while fitting in self.taken:
            number = self._numbers[stem] = self._numbers.get(stem, 1) + 1
            fitting = f"{stem}_{number}"
        self.taken.add(fitting)
        return fitting
