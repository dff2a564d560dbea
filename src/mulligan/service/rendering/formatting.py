"""Formatting functions for every face, so that they use the same words as the story of a run."""

from __future__ import annotations

from mulligan.core.model.text.formatting import (
    escape_unprintable,
    format_duration,
    format_size,
    pluralize,
    quote_names,
    single_line,
)
from mulligan.history.matrices import (
    ATTENTION,
    count_statuses,
    find_differences,
    group_counts,
    group_status,
    group_title,
    shared_beginning,
    value_text,
    values_text,
)
from mulligan.history.phrases import (
    NOT_APPLIED,
    PARKED_FOR,
    UNDO_FAILED,
    describe_suggested_limits,
    describe_suggestion,
    up_to_date_since,
)
from mulligan.language.input_values import format_input

__all__ = [
    "ATTENTION",
    "NOT_APPLIED",
    "PARKED_FOR",
    "UNDO_FAILED",
    "count_statuses",
    "describe_suggested_limits",
    "describe_suggestion",
    "escape_unprintable",
    "find_differences",
    "format_duration",
    "format_input",
    "format_size",
    "group_counts",
    "group_status",
    "group_title",
    "pluralize",
    "quote_names",
    "shared_beginning",
    "single_line",
    "up_to_date_since",
    "value_text",
    "values_text",
]
