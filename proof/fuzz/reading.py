"""Targets that are files: YAML, workflows with what they include, and the other systems' files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.workflow import Workflow, decode, encode
from mulligan.formats import convert, examine, json5_text
from mulligan.formats.torc import kdl
from mulligan.formats.torc.sweeps import is_same
from mulligan.language.loading import load_text
from mulligan.language.text import document
from mulligan.language.text.nodes import Node, Refusal, Source, plain
from mulligan.service.rendering.drawing import draw_mermaid

from .sentences import refusing, require

# Between the files of one input.
CUT = b"\n%%%\n"
NAMES = ("main.yaml", "child.yaml", "other.yaml")


def yaml(data: bytes) -> None:
    """Bytes into nodes, by both parsers; where both take them they say the same."""
    found = [value for value in (_parsed(data, is_c=True), _parsed(data, is_c=False)) if value is not None]
    require(len(found) < 2 or repr(found[0]) == repr(found[1]), f"two parsers, two meanings: {found!r:.300}")


def _parsed(data: bytes, *, is_c: bool) -> Any:
    try:
        return plain(document.parse(document.decode(data, "w.yaml"), is_c_parser_wanted=is_c))
    except Refusal as refusal:
        require(refusal.problem.render().startswith("error[language."), "a refusal without a code")
        return None


def workflow(data: bytes) -> None:
    """A Mulligan file: refused, or a workflow that survives storing, and can be drawn."""
    with refusing():
        found = load_text(data, "w.yaml")
        require(decode(encode(found)) == found, "a workflow is another after it was kept")
        draw_mermaid(found)


def includes(data: bytes) -> None:
    """Files that name each other; one is a link to another."""
    with _folder() as folder:
        for name, part in zip(NAMES, data.split(CUT), strict=False):
            (folder / name).write_bytes(part)
        (folder / "link.yaml").symlink_to("main.yaml")
        (folder / "loop.yaml").symlink_to("loop.yaml")
        with refusing():
            examine(folder / NAMES[0])


def json5(data: bytes) -> None:
    _read(data, json5_text.parse)
    _read(data, json5_text.parse_json)


def kdl_text(data: bytes) -> None:
    _read(data, kdl.parse)


def _read(data: bytes, parse: Callable[[Source], Node]) -> None:
    with refusing(Refusal):
        plain(parse(document.decode(data, "w")))


def anybodys(data: bytes) -> None:
    """A file of unknown format."""
    _converted(data, "w.yaml", None)


def of_system(system: str, suffix: str) -> Callable[[bytes], None]:
    """A file that is said to be of a system: what is read of it, `convert` writes down."""

    def target(data: bytes) -> None:
        _converted(data, f"w{suffix}", system)

    return target


def _converted(data: bytes, name: str, system: str | None) -> None:
    with _folder() as folder, refusing():
        path, ours = folder / name, folder / "ours.yaml"
        path.write_bytes(data)
        found = examine(path, named=system).workflow
        ours.write_text(convert(path, named=system).text, encoding="utf-8")
        again = examine(ours).workflow
        if found.name == path.stem:
            # It has no name of its own: it is called as its file is.
            again = msgspec.structs.replace(again, name=found.name)
        is_sweep = found.origin == "torc" and "matrix:" in ours.read_text(encoding="utf-8")
        found = msgspec.structs.replace(found, origin="")
        # A sweep is written as a matrix, which is compared step by step.
        is_equal = is_same(found, again) if is_sweep else _plain(again) == _plain(found)
        require(is_equal, "what is converted is another workflow")


def _plain(workflow: Workflow) -> Any:
    return json.loads(encode(msgspec.structs.replace(workflow, origin="")))


@contextmanager
def _folder() -> Iterator[Path]:
    """An empty folder, in which one is: what a file names is looked for there."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
