"""References to artifacts in words: `table 1,000 × 5 (parquet, 12KiB)`."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.artifacts import DROPPED, KEY, VALUE_FORMATS, describe_excess, replace_references
from mulligan.core.model.text.formatting import format_size

_KINDS = {"numpy.ndarray": "array", "pandas.Series": "column", "polars.Series": "column"}


def describe_file(reference: dict[str, Any]) -> str:
    """What a file is, or how large an output was that was not kept; "" for an artifact that is a value."""
    description = reference[KEY]
    if not isinstance(description, dict) or description.get("format", "json") in VALUE_FORMATS:
        return ""
    if description["format"] == DROPPED:
        return f"not kept: it {describe_excess(description.get('size', 0))}"
    kind, size = str(description.get("type", "")), format_size(description.get("size", 0))
    if not kind:
        return f"file ({size})"
    figures = map(description.get, ("rows", "columns"))
    extent = description.get("shape") or [figure for figure in figures if figure is not None]
    words = [_KINDS.get(kind, "table"), " × ".join(f"{length:,}" for length in extent)]
    return f"{' '.join(filter(None, words))} ({description['format']}, {size})"


def with_files_described(value: Any) -> Any:
    """The value with words in place of references to files, for people to read."""
    return replace_references(value, lambda reference: describe_file(reference) or reference)
