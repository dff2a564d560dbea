"""Which faults a history may have. Reduced step by step, it shows which faults break an invariant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

StoreKind = Literal["", "memory", "shared", "sqlite"]
# The simplest first.
STORE_KINDS: tuple[StoreKind, ...] = ("memory", "shared", "sqlite")


class FaultBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits for a history. The default limits nothing."""

    # Faults that never happen, by the names under which they are counted.
    without: frozenset[str] = frozenset()
    # The phase with faults ends after this many steps.
    steps_max: int | None = None
    engines_max: int | None = None
    # "": chosen by the seed.
    store: StoreKind = ""

    def less(self, kinds: Iterable[str], steps: int, engines: int, store: str) -> Iterator[FaultBudget]:
        """Yield budgets with one thing less than what happened under this one, larger cuts first."""
        replace = msgspec.structs.replace
        shorter = sorted({*(steps * share // 8 for share in (0, 1, 2, 4, 6, 7)), steps - 1} if steps else ())
        yield from (replace(self, steps_max=most) for most in shorter)
        yield from (replace(self, without=self.without | {kind}) for kind in sorted(set(kinds) - self.without))
        yield from (replace(self, engines_max=count) for count in range(1, engines))
        simpler = STORE_KINDS[: STORE_KINDS.index(store)] if store in STORE_KINDS else ()
        yield from (replace(self, store=kind) for kind in simpler)


ALL_FAULTS = FaultBudget()
