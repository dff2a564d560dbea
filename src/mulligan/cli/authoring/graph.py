"""`mulligan graph`: draw a workflow."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused, complain, show_bytes, show_result
from mulligan.cli.words.options import Catalogue, HomeFolder, service_at
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.core.model.workflow import Workflow
from mulligan.errors import MulliganError
from mulligan.formats import FORMATS, OURS, is_system
from mulligan.service.authoring.area import Workflows
from mulligan.service.authoring.named_files import write_file
from mulligan.service.rendering.drawing import choose_picture

PICTURES = ("mermaid", "svg", "png")
# Mermaid's default for `maxEdges`, which a diagram cannot change.
_MERMAID_EDGES_MAX = 500
# A small drawing has twice as many pixels as it is wide; a huge one has fewer.
_PNG_ZOOM, _PNG_PIXELS_MAX = 2.0, 8000
_SUFFIXES = {
    ".svg": "svg",
    ".png": "png",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".md": "mermaid",
    ".txt": "mermaid",
}


class NoRenderer(MulliganError):
    """Nothing on this machine turns an SVG into a PNG."""

    code = "graph.no_renderer"
    http_status = 422
    exit_code = 2


def graph(
    file: Annotated[Path | None, Argument("FILE", "A workflow file (or use --run).")] = None,
    forms: Annotated[
        list[str] | None,
        Option(
            "WORD", "mermaid, svg or png (default: from the name OUT), or the system of the file.", "--format", "-f"
        ),
    ] = None,
    out: Annotated[Path | None, Option("OUT", "Write to this file instead of stdout.", "--out", "-o")] = None,
    run: Annotated[str | None, Option("RUN", "Draw a run, with the status of its steps, instead of a file.")] = None,
    expand: Annotated[bool, Flag("Draw each step of a matrix, and each of many similar steps.")] = False,
    catalogue: Catalogue = None,
    home: HomeFolder = None,
    as_json: Annotated[bool, Flag("Print the nodes and links as one JSON object.", "--json")] = False,
) -> None:
    """Draw a workflow, or a run of it, as Mermaid, SVG or PNG.

    The steps of a matrix are drawn as one card, and so are many steps with similar names and the same links. --format
    may be given twice: for the format of the picture, and for the system of the file if it is not detected.
    """
    picture, system = _split_formats(forms or [])
    workflow, statuses, name = _load(file, system, catalogue, run, home)
    if as_json:
        show_result(choose_picture(workflow, statuses, is_expanded=expand))
        return
    form = _format(picture, out)
    if form == "png" and out is None and sys.stdout.isatty():
        raise UsageRefused("a PNG cannot be shown in a terminal", hint=f"write it to a file: -o {name}.png")
    if form == "mermaid" and len(choose_picture(workflow, is_expanded=expand).links) > _MERMAID_EDGES_MAX:
        complain(f"more than {_MERMAID_EDGES_MAX} edges: Mermaid may refuse to draw them; use --format svg")
    drawing = Workflows.draw(workflow, "mermaid" if form == "mermaid" else "svg", statuses, is_expanded=expand)
    data = _png(drawing) if form == "png" else drawing.encode()
    if out is None:
        show_bytes(data)
    else:
        write_file(out, data)
        complain(f"wrote {out}")


def _load(
    file: Path | None, system: str | None, catalogue: Path | None, run: str | None, home: str | None
) -> tuple[Workflow, dict[str, str] | None, str]:
    """The workflow to draw, the statuses of its steps if it is a run, and a name for the picture."""
    if file is not None and run is None:
        return Workflows.load_workflow(file, named=system, catalogue=catalogue), None, file.stem
    if file is not None or run is None or system is not None or catalogue is not None:
        raise UsageRefused("name either a file or a run", hint="write mulligan graph FILE, or mulligan graph --run RUN")
    with service_at(home) as service:
        workflow, statuses = service.runs.drawn(service.runs.find(run))
    return workflow, statuses, workflow.name


def _split_formats(words: list[str]) -> tuple[str | None, str | None]:
    """The format of the picture and the system of the file, each given at most once."""
    pictures = [word for word in words if word in PICTURES]
    systems = [word for word in words if word not in PICTURES]
    if unknown := [word for word in systems if not is_system(word)]:
        hint = f"pictures: {', '.join(PICTURES)}; systems: {', '.join(FORMATS)}, {OURS}"
        raise UsageRefused(f"'{unknown[0]}' is neither a format of a picture nor a system", hint=hint)
    for same in (pictures, systems):
        if len(same) > 1:
            raise UsageRefused(f"--format cannot be both '{same[0]}' and '{same[1]}'", hint="leave one of them out")
    return next(iter(pictures), None), next(iter(systems), None)


def _format(asked: str | None, out: Path | None) -> str:
    """The format that was asked for, or that of the file's suffix; refused if the two differ."""
    suffix = out.suffix.lower() if out else ""
    named = _SUFFIXES.get(suffix)
    if suffix and named is None:
        raise UsageRefused(f"'{suffix}' is not a format of a picture", hint="use .svg, .png, or .mmd for Mermaid")
    if asked and named and asked != named:
        raise UsageRefused(f"--format is '{asked}', but '{out}' ends in '{suffix}'", hint="leave one of them out")
    return asked or named or "mermaid"


def _png(drawing: str) -> bytes:
    """An SVG as a PNG."""
    try:
        import resvg_py

        render = resvg_py.svg_to_bytes
    except ImportError:
        message = "a PNG needs the package 'resvg-py', which is not installed"
        raise NoRenderer(message, hint="pip install 'mulligan[png]', or use --format svg") from None
    # The renderer leaves out text without a word where it finds no font.
    empty, lettered = (
        render(svg_string=f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{content}</svg>')
        for content in ("", '<text y="15" font-family="sans-serif">M</text>')
    )
    if lettered == empty:
        message = "a PNG needs a font, and this machine has none"
        raise NoRenderer(message, hint="install one, such as the system package 'fonts-dejavu', or use --format svg")
    size = re.search(r'width="(\d+)" height="(\d+)"', drawing)
    longest = max(int(size[1]), int(size[2])) if size else _PNG_PIXELS_MAX
    return bytes(render(svg_string=drawing, zoom=min(_PNG_ZOOM, _PNG_PIXELS_MAX / longest)))
