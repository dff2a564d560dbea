"""Numbers and names as people say them, for every face: in the words in which the story of a run is told."""

from __future__ import annotations

from ..core.matrices import ATTENTION, differing, group_counts, group_title, shared_beginning, value_text, values_text
from ..core.words import counted, flat, quoted, spelled
from ..core.words import size as memory

__all__ = [
    "ATTENTION",
    "counted",
    "differing",
    "flat",
    "group_counts",
    "group_title",
    "memory",
    "quoted",
    "shared_beginning",
    "spelled",
    "value_text",
    "values_text",
]
