"""Numbers and names as people say them, for every face: in the words in which the story of a run is told."""

from __future__ import annotations

from ..core.words import counted, flat, quoted, span, spelled, up_to_date_since
from ..core.words import size as memory
from ..language.inputs import shown as as_given

__all__ = ["as_given", "counted", "flat", "memory", "quoted", "span", "spelled", "up_to_date_since"]
