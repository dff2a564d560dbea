"""Numbers and names as people say them, for every face: in the words in which the story of a run is told."""

from __future__ import annotations

from ..core.matrices import ATTENTION, differing, group_counts, group_title, shared_beginning, value_text, values_text
from ..core.words import counted, flat, quoted, span, spelled, up_to_date_since
from ..core.words import size as memory
from ..language.inputs import shown as as_given

__all__ = [
    "ATTENTION",
    "as_given",
    "counted",
    "differing",
    "flat",
    "group_counts",
    "group_title",
    "memory",
    "quoted",
    "shared_beginning",
    "span",
    "spelled",
    "up_to_date_since",
    "value_text",
    "values_text",
]
