"""Parse sizes: `512MiB`, `4GB`, in a file or in the answer of an agent."""

from __future__ import annotations

import re
from typing import Any

from mulligan.core.model.text.lazy_regex import lazy_regex

_SIZE = lazy_regex(r"(\d+(?:\.\d+)?)\s*([KMGTP]i?B|[KMGTP]i?|B)", re.IGNORECASE)

SIZE_BYTES_MAX = 2**60


def parse_size(value: Any) -> int:
    """The bytes in `512MiB` or `4GB`. ValueError for anything else, including a number without a unit."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(value)
    number, unit = found.groups()
    power = "BKMGTP".index(unit[0].upper())
    amount: float = float(number) * (1024 if "i" in unit.lower() else 1000) ** power
    if not 0.5 < amount <= SIZE_BYTES_MAX:
        raise ValueError(value)
    return round(amount)
