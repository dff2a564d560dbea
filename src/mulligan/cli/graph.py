"""`mulligan graph`: a workflow as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from mulligan.cli.files import write_file
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.raster import png
from mulligan.cli.terminal import UsageRefused, complain, show_bytes, show_json
from mulligan.service.definitions import Workflow, load
from mulligan.service.drawings import draw_mermaid, draw_svg, drawn_links, picture_json

Format = Literal["mermaid", "svg", "png"]
# What Mermaid allows where nobody has set `maxEdges`, which a diagram cannot do for itself.
_MERMAID_EDGES_MAX = 500
_SUFFIXES: dict[str, Format] = {
    ".svg": "svg",
    ".png": "png",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".md": "mermaid",
    ".txt": "mermaid",
}


def graph(
    file: Annotated[Path, Argument(metavar="FILE", help="A workflow file.")],
    form: Annotated[
        Format | None,
        Option("--format", "-f", help="By default what OUT ends in, else mermaid.", show_default=False),
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", metavar="OUT", help="Write it there, not to stdout.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print the nodes and links as one JSON object.")] = False,
) -> None:
    """Draw a workflow as Mermaid, SVG or PNG."""
    workflow = load(file)
    if as_json:
        show_json(picture_json(workflow))
        return
    form = _format(form, out)
    if form == "png" and out is None and sys.stdout.isatty():
        raise UsageRefused("a PNG is no text for a terminal", hint=f"name a file for it: -o {file.stem}.png")
    if form == "mermaid" and drawn_links(workflow) > _MERMAID_EDGES_MAX:
        complain(f"more than {_MERMAID_EDGES_MAX} edges: Mermaid may refuse to draw them, --format svg does not")
    _put(_drawn(workflow, form), out)


def _format(asked: Format | None, out: Path | None) -> Format:
    """The format asked for, else what the file's name ends in. A name that says otherwise is refused."""
    suffix = out.suffix.lower() if out else ""
    named = _SUFFIXES.get(suffix)
    if suffix and named is None:
        raise UsageRefused(f"'{suffix}' is no format of a picture", hint="there are .svg, .png and, for Mermaid, .mmd")
    if asked and named and asked != named:
        raise UsageRefused(f"'{asked}' was asked for, and '{out}' ends in '{suffix}'", hint="leave one of them out")
    return asked or named or "mermaid"


def _put(data: bytes, out: Path | None) -> None:
    if out is None:
        show_bytes(data)
        return
    write_file(out, data)
    complain(f"wrote {out}")


def _drawn(workflow: Workflow, form: Format) -> bytes:
    if form == "mermaid":
        return draw_mermaid(workflow).encode()
    drawing = draw_svg(workflow)
    return png(drawing) if form == "png" else drawing.encode()
