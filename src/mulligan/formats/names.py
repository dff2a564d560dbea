"""Names that fit: letters, digits, `_` and `-`, and none twice."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.core.model.workflow import END

_UNFIT = lazy_regex(r"[^A-Za-z0-9_-]")
_UNFIT_FOR_FILES = lazy_regex(r"[^A-Za-z0-9_]|^(?=\d)")
_UNFIT_FOR_POLICIES = lazy_regex(r"[^A-Za-z0-9_-]|^(?=[\d-])")


class Names:
    """Gives each thing a name of ours: its own where that fits, else one like it that is free."""

    def __init__(self, unfit: re.Pattern[str], taken: Iterable[str] = ()) -> None:
        self._unfit = unfit
        self.taken = set(taken)
        # Of each name that was wanted more than once: the last number. Thousands of steps may want the same.
        self._numbers: dict[str, int] = {}

    @classmethod
    def of_steps(cls) -> Names:
        """Names of steps. `end` is the one that runs last."""
        return cls(_UNFIT, (END,))

    @classmethod
    def of_files(cls) -> Names:
        """Names that can be read as a field."""
        return cls(_UNFIT_FOR_FILES)

    @classmethod
    def of_policies(cls) -> Names:
        """Names of retry policies, which begin with a letter or `_`."""
        return cls(_UNFIT_FOR_POLICIES)

    def fit_all(self, names: Iterable[str]) -> dict[str, str]:
        """A name of ours for each of these. What fits keeps its name, whatever came before it."""
        names = list(names)
        fitting = [name for name in names if not self._unfit.search(name) and name not in self.taken]
        self.taken.update(fitting)
        found = set(fitting)
        return {name: name if name in found else self.fit(name) for name in names}

    def fit(self, name: str) -> str:
        """A free name as near to this one as can be, taken from now on."""
        stem = found = self._unfit.sub("_", name) or "_"
        while found in self.taken:
            number = self._numbers[stem] = self._numbers.get(stem, 1) + 1
            found = f"{stem}_{number}"
        self.taken.add(found)
        return found
