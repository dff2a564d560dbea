"""The JSON Schema of the language, for editors: made from the same keys that the reader reads."""

from __future__ import annotations

from typing import Any

from mulligan.language.keys import WORKFLOW

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a workflow file."""
    definitions: dict[str, Any] = {}
    root = WORKFLOW.schema(definitions)
    return {"$schema": DIALECT, "title": "Mulligan workflow", **root, "$defs": dict(sorted(definitions.items()))}
