"""`mulligan schema`: the JSON Schema of workflow files, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mulligan.cli.output.terminal import complain, show
from mulligan.cli.words.parameters import Flag, Option
from mulligan.service.authoring.area import Workflows
from mulligan.service.authoring.named_files import write_file


def schema(
    out: Annotated[Path | None, Option("FILE", "Write to this file instead of stdout.", "--out", "-o")] = None,
    as_json: Annotated[bool, Flag("No effect: the schema is JSON.", "--json")] = False,
) -> None:
    """Print the JSON Schema of workflow files, for editors.

    With the YAML language server, name it in the first line of a workflow:

    # yaml-language-server: $schema=mulligan.schema.json
    """
    if out is None:
        show(Workflows.schema_text().rstrip("\n"))
        return
    write_file(out, Workflows.schema_text().encode())
    complain(f"wrote {out}")
