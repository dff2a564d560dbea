"""`mulligan convert`: convert a file of another system, or a flow in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mulligan import formats
from mulligan.cli.output.terminal import UsageRefused, complain, show_bytes, show_json, show_warnings
from mulligan.cli.words.options import Catalogue, System, TrustTemplates, coverage_hint
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.formats import OURS, Converted
from mulligan.service.authoring.named_files import write_file
from mulligan.service.rendering.json_output import to_json


def convert(
    file: Annotated[Path, Argument("FILE", "A file of Torc, Prodigy, NoETL or Alphred, or a Python file.")],
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    out: Annotated[Path | None, Option("OUT", "Write to this file instead of stdout.", "--out", "-o")] = None,
    force: Annotated[bool, Flag("Overwrite OUT if it exists.")] = False,
    as_json: Annotated[bool, Flag("Print one JSON object with the text and the warnings.", "--json")] = False,
) -> None:
    """Convert a workflow of another system, or a flow in Python, to a Mulligan file.

    The result is what `mulligan run FILE` would run, with comments where something has no equivalent. FILE is not
    changed. What a Python file builds still calls its functions. Files that it includes are looked for next to OUT.
    """
    if out is not None and out.resolve() == file.resolve():
        raise UsageRefused(f"'{out}' is the file to convert", hint="name another file for the result")
    is_there = out is not None and (out.is_file() or (out.is_symlink() and not out.exists()))
    if is_there and not force:
        raise UsageRefused(f"'{out}' exists, and may have been edited", hint="to overwrite it: --force")
    found = formats.convert(file, named=system, trust_templates=trust_templates, catalogue=catalogue)
    _show_warnings(file, found, as_json=as_json)
    data = found.text.encode("utf-8", "surrogateescape")
    if out is not None:
        write_file(out, data)
        complain(f"wrote {out}")
        if found.origin:
            complain(coverage_hint(str(out)))
    if as_json:
        _show_json(file, found, out)
    elif out is None:
        show_bytes(data)


def _show_warnings(file: Path, found: Converted, *, as_json: bool) -> None:
    """Show the warnings."""
    show_warnings(() if as_json else found.warnings)
    if not found.origin:
        complain(f"'{file}' is already a Mulligan workflow, and is written unchanged")


def _show_json(file: Path, found: Converted, out: Path | None) -> None:
    warnings = to_json(found.warnings)
    said = {"file": str(file), "format": found.origin or OURS, "out": str(out) if out else None}
    show_json({**said, "text": found.text, "warnings": warnings})
