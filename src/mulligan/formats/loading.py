"""Files of anybody's into workflows, and foreign ones into text of ours."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from mulligan.core.workflow import Workflow
from mulligan.errors import LanguageError
from mulligan.formats.recognition import recognised
from mulligan.formats.translation import Translate, Translation
from mulligan.language import loading
from mulligan.language.document import parse
from mulligan.language.loading import Examined, file_bytes, read_tree, without_collections
from mulligan.language.nodes import Enough, Node, Refusal, Source

# What reads a file that is no YAML, by the end of its name.
_SYNTAXES = {
    ".kdl": "mulligan.formats.torc.kdl:parse",
    ".json": "mulligan.formats.json5_text:parse_json",
    ".json5": "mulligan.formats.json5_text:parse",
}


def examine(path: str | Path, *, named: str | None = None) -> Examined:
    """The checked workflow in anybody's file, with its warnings. `named` is the system it is of, else it is told."""
    return loading.examine(path, read=_Reading(str(Path(path)), named))


def load(path: str | Path, *, named: str | None = None) -> Workflow:
    """The checked workflow in anybody's file."""
    return examine(path, named=named).workflow


def convert(path: str | Path, *, named: str | None = None) -> str:
    """A foreign file as the text of one of ours, which runs the same. LanguageError where it is refused.

    A file of ours comes back as it is.
    """
    path = Path(path)
    examine(path, named=named)
    reading = _Reading(str(path), named)
    with without_collections():
        source, root = read_tree(file_bytes(path), path, reading)
    if not source.origin:
        return source.text
    written: Callable[..., str] = import_module("mulligan.formats.writing").written
    return written(root, reading.remarks)


class _Reading:
    """Reads a file and those it includes: each is asked whose it is, but for the first where that is said."""

    def __init__(self, first: str, named: str | None) -> None:
        self._first = first
        self._named = named
        self.remarks: dict[int, list[str]] = {}

    def __call__(self, source: Source) -> Node:
        root = _parsed(source)
        origin = (self._named if source.file == self._first else None) or recognised(root)
        if not origin:
            return root
        source.origin = origin
        return self._translated(root, source)

    def _translated(self, root: Node, source: Source) -> Node:
        translate: Translate = import_module(f"mulligan.formats.{source.origin}").translate
        translation = Translation(source)
        try:
            ours = translate(root, translation)
        except Refusal as refusal:
            source.problems.append(refusal.problem)
        except Enough:
            pass  # the problems so far say it all
        if source.problems:
            raise LanguageError(source.problems)
        self.remarks.update(translation.remarks)
        return ours


def _parsed(source: Source) -> Node:
    syntax = _SYNTAXES.get(Path(source.file).suffix.lower())
    if syntax is None:
        return parse(source)
    module, _, function = syntax.partition(":")
    read: Any = getattr(import_module(module), function)
    found: Node = read(source)
    return found
