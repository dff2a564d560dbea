"""`mulligan validate`: check workflow files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mulligan.cli.output.terminal import complain, show, show_result, show_warnings
from mulligan.cli.words.options import Catalogue, System, TrustTemplates, coverage_hint
from mulligan.cli.words.parameters import Argument, Flag
from mulligan.formats import OURS, title_of
from mulligan.service.authoring import workflow_files
from mulligan.service.authoring.workflow_files import Validation
from mulligan.service.rendering.formatting import pluralize


def validate(
    files: Annotated[list[Path], Argument("FILE...", "Workflow files.")],
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    as_json: Annotated[bool, Flag("Print one JSON object, or an array for several files.", "--json")] = False,
) -> int:
    """Check workflow files, and show what is wrong and where.

    Nothing is run. Files of Torc, Prodigy, NoETL and Alphred can be checked too.
    The exit code is 0 if all files are valid, with or without warnings, and 2 if any is refused.
    """
    found = [
        workflow_files.validate(path, named=system, trust_templates=trust_templates, catalogue=catalogue)
        for path in files
    ]
    if as_json:
        show_result(found[0] if len(found) == 1 else found)
    else:
        for one in found:
            _show(one)
    return 0 if all(one.ok for one in found) else 2


def _show(found: Validation) -> None:
    if found.error is not None:
        complain(found.error.render())
        return
    show_warnings(found.warnings)
    system = title_of(found.format) if found.format and found.format != OURS else ""
    origin = f"{'an' if system.startswith('A') else 'a'} {system} file: " if system else ""
    counts = (("step", found.steps or 0), ("edge", found.edges), ("input", found.inputs))
    size = ", ".join(pluralize(count, word) for word, count in counts if count or word == "step")
    show(f"{found.file}: ok, {origin}{size}")
    if system:
        complain(coverage_hint(found.file))
