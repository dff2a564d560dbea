"""`mulligan graph`: a workflow as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from mulligan.cli.files import write_file
from mulligan.cli.options import HomeFolder, service_at
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.raster import png
from mulligan.cli.terminal import UsageRefused, complain, show_bytes, show_json
from mulligan.service.definitions import FORMATS, OURS, Workflow, load
from mulligan.service.drawing import count_links, draw_mermaid, draw_svg, picture_json

PICTURES = ("mermaid", "svg", "png")
# What Mermaid allows where nobody has set `maxEdges`, which a diagram cannot do for itself.
_MERMAID_EDGES_MAX = 500
_SUFFIXES = {
    ".svg": "svg",
    ".png": "png",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".md": "mermaid",
    ".txt": "mermaid",
}


def graph(
    file: Annotated[Path | None, Argument(metavar="FILE", help="A workflow file; or --run.")] = None,
    forms: Annotated[
        list[str] | None,
        Option(
            "--format", "-f", metavar="WORD", help="mermaid, svg or png: else what OUT ends in. Or whose file it is."
        ),
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", metavar="OUT", help="Write it there, not to stdout.")] = None,
    run: Annotated[
        str | None, Option("--run", metavar="RUN", help="Draw a run, coloured by how its steps stand, not a file.")
    ] = None,
    expand: Annotated[
        bool, Option("--expand", help="Draw each step by itself: also those of a matrix, and many alike.")
    ] = False,
    home: HomeFolder = None,
    as_json: Annotated[bool, Option("--json", help="Print the nodes and links as one JSON object.")] = False,
) -> None:
    """Draw a workflow, or a run of it, as Mermaid, SVG or PNG.

    All steps of a matrix are one card, and so are many steps with like names and the same links. --format may be given
    twice: once for the picture, once for the system that the file is of, where that is not told.
    """
    picture, system = _meant(forms or [])
    workflow, statuses, name = _subject(file, system, run, home)
    if as_json:
        show_json(picture_json(workflow, statuses, is_expanded=expand))
        return
    form = _format(picture, out)
    if form == "png" and out is None and sys.stdout.isatty():
        raise UsageRefused("a PNG is no text for a terminal", hint=f"name a file for it: -o {name}.png")
    if form == "mermaid" and count_links(workflow, is_expanded=expand) > _MERMAID_EDGES_MAX:
        complain(f"more than {_MERMAID_EDGES_MAX} edges: Mermaid may refuse to draw them, --format svg does not")
    _put(_drawn(workflow, statuses, form, is_expanded=expand), out)


def _subject(
    file: Path | None, system: str | None, run: str | None, home: str | None
) -> tuple[Workflow, dict[str, str] | None, str]:
    """What is drawn: a workflow, the statuses of its steps if it is a run, and what a picture of it may be called."""
    if file is not None and run is None:
        return load(file, named=system), None, file.stem
    if file is not None or run is None or system is not None:
        raise UsageRefused("a picture is of a file or of a run", hint="write mulligan graph FILE, or --run RUN")
    with service_at(home) as service:
        workflow, statuses = service.drawn(service.find_run(run))
    return workflow, statuses, workflow.name


def _meant(words: list[str]) -> tuple[str | None, str | None]:
    """The picture and the system that were asked for. A word is one or the other, and each is said once."""
    pictures = [word for word in words if word in PICTURES]
    systems = [word for word in words if word not in PICTURES]
    if unknown := [word for word in systems if word not in FORMATS and word != OURS]:
        hint = f"there are {', '.join(PICTURES)}; and for whose file it is {', '.join(FORMATS)}, {OURS}"
        raise UsageRefused(f"'{unknown[0]}' is neither a picture nor a system", hint=hint)
    for alike in (pictures, systems):
        if len(alike) > 1:
            raise UsageRefused(f"'{alike[0]}' and '{alike[1]}' cannot both be", hint="leave one of them out")
    return next(iter(pictures), None), next(iter(systems), None)


def _format(asked: str | None, out: Path | None) -> str:
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


def _drawn(workflow: Workflow, statuses: dict[str, str] | None, form: str, *, is_expanded: bool) -> bytes:
    if form == "mermaid":
        return draw_mermaid(workflow, statuses, is_expanded=is_expanded).encode()
    drawing = draw_svg(workflow, statuses, is_expanded=is_expanded)
    return png(drawing) if form == "png" else drawing.encode()
