"""References to artifacts in words: `table 1,000 × 5 (parquet, 12KiB)`."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.artifacts import KEY, VALUE_FORMATS, replace_references
from mulligan.core.model.formatting import format_size

_KINDS = {"numpy.ndarray": "array", "pandas.Series": "column", "polars.Series": "column"}


def describe_file(reference: dict[str, Any]) -> str:
    """What a file is; "" for an artifact that is a value."""
    about = reference[KEY]
    if not isinstance(about, dict) or about.get("format", "json") in VALUE_FORMATS:
        return ""
    kind, size = str(about.get("type", "")), format_size(about.get("size", 0))
    if not kind:
        return f"file ({size})"
    extent = about.get("shape") or [one for one in (about.get("rows"), about.get("columns")) if one is not None]
    words = [_KINDS.get(kind, "table"), " × ".join(f"{length:,}" for length in extent)]
    return f"{' '.join(filter(None, words))} ({about['format']}, {size})"


def with_files_described(value: Any) -> Any:
    """The value with words in place of references to files, for people to read."""
    return replace_references(value, lambda reference: describe_file(reference) or reference)
