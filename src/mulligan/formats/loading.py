"""Files of anybody's into workflows, and foreign ones into text of ours."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError, Problem
from mulligan.formats.recognition import FORMATS, NOETL, OURS, advice, checked, other_advice, recognised
from mulligan.formats.translation import Translate, Translation, scalar
from mulligan.language import loading, python_files
from mulligan.language.document import decode, parse
from mulligan.language.loading import LoadResult, file_bytes, pause_garbage_collection, read_tree
from mulligan.language.nodes import Mapping, Node, Refusal, Source, TooManyProblems

# What reads a file that is no YAML, by the end of its name.
_SYNTAXES = {
    ".kdl": "mulligan.formats.torc.kdl:parse",
    ".json": "mulligan.formats.json5_text:parse_json",
    ".json5": "mulligan.formats.json5_text:parse",
}


def examine(
    path: str | Path, *, named: str | None = None, text: str | None = None, trust_templates: bool = False
) -> LoadResult:
    """The checked workflow in anybody's file, with its warnings; `text` stands for what is in it.

    `named` is the system that it is of; else that is told by what is in it. With `trust_templates` any value may become
    part of a command or a query of a NoETL file.
    """
    reading = _reading(Path(path), named, trust_templates)
    try:
        found = loading.examine(path, text=text, read=reading)
    except LanguageError as refused:
        first, *others = refused.problems
        raise LanguageError([reading.advised(first), *others]) from None
    reading.refuse_idle_trust()
    return found


def load(
    path: str | Path, *, named: str | None = None, text: str | None = None, trust_templates: bool = False
) -> Workflow:
    """The checked workflow in anybody's file."""
    return examine(path, named=named, text=text, trust_templates=trust_templates).workflow


class Converted(NamedTuple):
    """The text of a file of ours, and of whose file it was made: "" where it was ours already."""

    text: str
    origin: str
    warnings: tuple[Problem, ...]


def convert(path: str | Path, *, named: str | None = None, trust_templates: bool = False) -> Converted:
    """A foreign file as one of ours, which runs the same. LanguageError where it is refused.

    A file of ours comes back as it is.
    """
    path = Path(path)
    workflow, warnings = examine(path, named=named, trust_templates=trust_templates)
    if not workflow.origin:
        return Converted(decode(file_bytes(path), str(path)).text, "", warnings)
    reading = _reading(path, named, trust_templates)
    with pause_garbage_collection():
        _, root = read_tree(file_bytes(path), path, reading)
    _name(root, workflow.name)
    said = f"Converted from {path.name} ({FORMATS[workflow.origin]}) by `mulligan convert`."
    header = "\n".join([said, *_unplaced(warnings, reading.remarks)])
    written: Callable[..., str] = import_module("mulligan.formats.writing").written
    return Converted(written(root, reading.remarks, header), workflow.origin, warnings)


def _unplaced(warnings: tuple[Problem, ...], remarks: dict[int, list[str]]) -> list[str]:
    """What was warned about and is said above no node, for the head of the file: with its line in the other one."""
    placed = {text for texts in remarks.values() for text in texts}
    return [f"line {one.line}: {one.message}" for one in warnings if one.message not in placed]


def _name(root: Node, name: str) -> None:
    """Name what has no name of its own: it was called after its file, and will be in another one."""
    if isinstance(root, Mapping) and "name" not in root.entries:
        root.entries = {"name": (scalar("name", root), scalar(name, root)), **root.entries}


def _reading(path: Path, named: str | None, trust_templates: bool) -> _Reading:
    if named is not None and path.suffix == python_files.SUFFIX and checked(named) != OURS:
        message = f"this is a Python file, and {FORMATS[named]} has none"
        raise LanguageError([Problem("language.format", message, str(path))])
    return _Reading(str(path), None if named is None else checked(named), trust_templates)


class _Reading:
    """Reads a file and those it includes: each is asked whose it is, but for the first where that is said."""

    def __init__(self, first: str, named: str | None, trusts_templates: bool) -> None:
        self._first = first
        self._named = named
        self._trusts_templates = trusts_templates
        self._advice = ""
        self._translations: list[Translation] = []

    @property
    def remarks(self) -> dict[int, list[str]]:
        """What is to be said above nodes of the trees, by their identity."""
        return {node: texts for each in self._translations for node, texts in each.remarks.items()}

    def __call__(self, source: Source) -> Node:
        root = parsed(source)
        origin = self._origin(root, source)
        if not origin:
            return root
        source.origin = origin
        return self._translated(root, source)

    def _origin(self, root: Node, source: Source) -> str:
        if source.file != self._first:
            return recognised(root)
        if self._named is not None:
            self._advice = other_advice(root, self._named)
            return "" if self._named == OURS else self._named
        origin = recognised(root)
        self._advice = "" if origin else advice(root)
        return origin

    def advised(self, problem: Problem) -> Problem:
        """The first problem of a file, with what may be said about whose it could be if not whose we took it for."""
        if not self._advice:
            return problem
        said = f"{problem.hint} {self._advice}" if problem.hint.endswith("?") else f"{problem.hint}; {self._advice}"
        return msgspec.structs.replace(problem, hint=said if problem.hint else self._advice)

    def refuse_idle_trust(self) -> None:
        """Refuse to trust the templates of files that have none: whoever says so takes them for something else."""
        if self._trusts_templates and not any(each.source.origin == NOETL for each in self._translations):
            message = "--trust-templates is for NoETL files, and this is not one"
            raise LanguageError([Problem("language.format", message, self._first)])

    def _translated(self, root: Node, source: Source) -> Node:
        translate: Translate = import_module(f"mulligan.formats.{source.origin}").translate
        is_included = source.file != self._first
        translation = Translation(source, is_included=is_included, trusts_templates=self._trusts_templates)
        try:
            ours = translate(root, translation)
        except Refusal as refusal:
            source.problems.append(refusal.problem)
        except TooManyProblems:
            pass  # the problems so far say it all
        if source.problems:
            raise LanguageError(source.problems)
        self._translations.append(translation)
        return ours


def parsed(source: Source) -> Node:
    """What anybody's file says, as a tree, whatever it is written in."""
    syntax = _SYNTAXES.get(Path(source.file).suffix.lower())
    if syntax is None:
        return parse(source)
    module, _, function = syntax.partition(":")
    read: Any = getattr(import_module(module), function)
    found: Node = read(source)
    return found
