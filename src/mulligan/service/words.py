"""Numbers and names as people say them, for every face: in the words in which the story of a run is told."""

from __future__ import annotations

from ..core.matrices import ATTENTION, group_counts, group_title, value_text, values_text
from ..core.words import counted, flat, quoted, spelled
from ..core.words import size as memory

__all__ = [
    "ATTENTION",
    "counted",
    "flat",
    "group_counts",
    "group_title",
    "memory",
    "quoted",
    "spelled",
    "value_text",
    "values_text",
]
