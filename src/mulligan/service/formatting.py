"""Numbers and names as people say them, for every face: in the words in which the story of a run is told."""

from __future__ import annotations

from mulligan.core.model.formatting import (
    escape_unprintable,
    format_duration,
    format_size,
    pluralize,
    quote_names,
    single_line,
)
from mulligan.history.matrices import (
    ATTENTION,
    differing,
    group_counts,
    group_title,
    shared_beginning,
    value_text,
    values_text,
)
from mulligan.history.phrases import up_to_date_since
from mulligan.language.inputs import format_input

__all__ = [
    "ATTENTION",
    "differing",
    "escape_unprintable",
    "format_duration",
    "format_input",
    "format_size",
    "group_counts",
    "group_title",
    "pluralize",
    "quote_names",
    "shared_beginning",
    "single_line",
    "up_to_date_since",
    "value_text",
    "values_text",
]
