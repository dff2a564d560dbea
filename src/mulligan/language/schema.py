"""The JSON Schema of the language, for editors: made from the same keys that the reader reads."""

from __future__ import annotations

from typing import Any

from mulligan.errors import Refused
from mulligan.language.keys import COMMAND, DO_COMMAND, END, HANDLER, OVER_RECORD, SCRIPT_RECORD, STEP, WORKFLOW
from mulligan.language.plugins import Plugin, find, names
from mulligan.language.shapes import Definitions
from mulligan.plugins import Unusable

# Where an action may stand.
ACTING = (STEP, COMMAND, DO_COMMAND, HANDLER, OVER_RECORD, SCRIPT_RECORD, END)
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a workflow file."""
    definitions: dict[str, Any] = {}
    root = WORKFLOW.schema(definitions)
    for plugin in _plugins():
        _add(plugin, definitions)
    return {"$schema": DIALECT, "title": "Mulligan workflow", **root, "$defs": dict(sorted(definitions.items()))}


def _plugins() -> list[Plugin]:
    """All that packages add. Refused, with the package's name, where one of them can never be used."""
    try:
        found = [plugin for name in sorted(names()) if (plugin := find(name))]
    except Unusable as problem:
        raise Refused(str(problem)) from None
    for plugin in found:
        if any(plugin.name in record.keys for record in ACTING):
            message = f"the action '{plugin.name}' of '{plugin.package}' is called what a key of ours is called"
            raise Refused(message, hint="its package must give it another name")
    return found


def _add(plugin: Plugin, definitions: Definitions) -> None:
    shape = {**plugin.shape.schema(definitions), "description": plugin.definition.about}
    for record in ACTING:
        definitions[record.name]["properties"][plugin.name] = shape
        definitions[record.name]["oneOf"].append({"required": [plugin.name]})
