"""`mulligan schema`: what a workflow file may contain, for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from mulligan.cli.files import write_file
from mulligan.cli.parameters import Option
from mulligan.cli.terminal import complain, show_json
from mulligan.service.definitions import schema as language_schema


def schema(
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help="Write it there, not to stdout.")] = None,
    as_json: Annotated[bool, Option("--json", help="It is JSON anyway.")] = False,
) -> None:
    """Print the JSON Schema of workflow files, for editors.

    With the YAML language server, name it in the first line of a workflow:

    # yaml-language-server: $schema=mulligan.schema.json
    """
    if out is None:
        show_json(language_schema())
        return
    write_file(out, json.dumps(language_schema(), indent=2).encode() + b"\n")
    complain(f"wrote {out}")
