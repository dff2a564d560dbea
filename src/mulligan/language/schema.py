"""The JSON Schema of the language, for editors, made from the tables of keys.

`python -m mulligan.language.schema` writes it to the file that is installed with the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mulligan.errors import Refused
from mulligan.language.keys.plugins import Plugin, find, names
from mulligan.language.keys.retry_keys import SCRIPT_RECORD
from mulligan.language.keys.value_schemas import Definitions
from mulligan.language.keys.workflow_keys import COMMAND, DO_COMMAND, END, HANDLER, OVER_RECORD, STEP, WORKFLOW
from mulligan.plugins import PluginError

# The records that contain an action.
ACTION_RECORDS = (STEP, COMMAND, DO_COMMAND, HANDLER, OVER_RECORD, SCRIPT_RECORD, END)
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The permanent id of the schema (ADR 32). It is not a URL.
ID = "urn:uuid:ee02fa88-65df-4d6f-bed9-b06409c8d0ac"
# Without the actions of plugins.
FILE = Path(__file__).parent.parent / "workflow.schema.json"


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a workflow file."""
    definitions: dict[str, Any] = {}
    WORKFLOW.to_json_schema(definitions)
    for plugin in _plugins():
        _add(plugin, definitions)
    head = {"$schema": DIALECT, "$id": ID, "title": "Mulligan workflow"}
    # The workflow is inlined at the root: up to draft 7, keywords next to a '$ref' are ignored.
    root, definitions[WORKFLOW.name] = definitions[WORKFLOW.name], {"$ref": "#"}
    return {**head, **root, "$defs": dict(sorted(definitions.items()))}


def schema_text() -> str:
    """The schema as the text of a file."""
    return json.dumps(schema(), indent=2) + "\n"


def _plugins() -> list[Plugin]:
    """The actions of all plugins. Refused, with the name of the package, if one cannot be used."""
    try:
        found = [plugin for name in sorted(names()) if (plugin := find(name))]
    except PluginError as problem:
        raise Refused(str(problem)) from None
    for plugin in found:
        if any(plugin.name in record.keys for record in ACTION_RECORDS):
            message = f"the action '{plugin.name}' of '{plugin.package}' has the name of a built-in key"
            raise Refused(message, hint="the package must rename it")
    return found


def _add(plugin: Plugin, definitions: Definitions) -> None:
    schema = {**plugin.schema.to_json_schema(definitions), "description": plugin.definition.about}
    for record in ACTION_RECORDS:
        definitions[record.name]["properties"][plugin.name] = schema
        definitions[record.name]["oneOf"].append({"required": [plugin.name]})


if __name__ == "__main__":
    FILE.write_text(schema_text(), encoding="utf-8")
