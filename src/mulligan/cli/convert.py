"""`mulligan convert`: another system's file as one of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mulligan.cli.files import write_file
from mulligan.cli.options import System, TrustTemplates
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.terminal import UsageRefused, complain, show_bytes, show_json
from mulligan.service import OURS, Converted, Service, to_json


def convert(
    file: Annotated[Path, Argument(metavar="FILE", help="A file of Torc, Prodigy, NoETL or Alphred.")],
    system: System = None,
    trust_templates: TrustTemplates = False,
    out: Annotated[Path | None, Option("--out", "-o", metavar="OUT", help="Write it there, not to stdout.")] = None,
    force: Annotated[bool, Option("--force", help="Write it though OUT is there already.")] = False,
    as_json: Annotated[
        bool, Option("--json", help="Print one JSON object: the text, and what was warned about.")
    ] = False,
) -> None:
    """Convert a workflow of another system to a Mulligan workflow.

    What `mulligan run FILE` would run is what is written, with comments where something has no equal. The other file
    stays as it is. Files that it includes are looked for beside OUT.
    """
    if out is not None and out.resolve() == file.resolve():
        raise UsageRefused(f"'{out}' is the file itself", hint="name another one for what is written")
    is_there = out is not None and (out.is_file() or (out.is_symlink() and not out.exists()))
    if is_there and not force:
        raise UsageRefused(f"'{out}' is there already, and may be more than a conversion by now", hint="say --force")
    found = Service.convert_workflow(file, named=system, trust_templates=trust_templates)
    _tell(file, found, as_json=as_json)
    data = found.text.encode("utf-8", "surrogateescape")
    if out is not None:
        write_file(out, data)
        complain(f"wrote {out}")
    if as_json:
        _show_json(file, found, out)
    elif out is None:
        show_bytes(data)


def _tell(file: Path, found: Converted, *, as_json: bool) -> None:
    """What a reader of the text should know before."""
    for warning in () if as_json else found.warnings:
        complain(warning.render())
    if not found.origin:
        complain(f"'{file}' is a file of ours already: it is written as it is")


def _show_json(file: Path, found: Converted, out: Path | None) -> None:
    warnings = to_json(found.warnings)
    said = {"file": str(file), "format": found.origin or OURS, "out": str(out) if out else None}
    show_json({**said, "text": found.text, "warnings": warnings})
