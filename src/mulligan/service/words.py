"""Numbers and names as people say them, for every face: in the words in which the story of a run is told."""

from __future__ import annotations

from ..core.words import counted, flat, quoted, spelled, up_to_date_since
from ..core.words import size as memory

__all__ = ["counted", "flat", "memory", "quoted", "spelled", "up_to_date_since"]
