"""Loads workflows from files. Each included file is loaded once."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError, Problem
from mulligan.language.checked_files import LoadResult, digest_of
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.language.published import find_published, is_reference
from mulligan.language.python import python_files
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Mapping, Node, Refusal, Source
from mulligan.language.text.suggestions import closest
from mulligan.language.workflows import read_workflow

INCLUDE_DEPTH_MAX = 16
# Each use of a file is a copy of it, so files that include others twice double at each level.
INCLUDES_MAX = 10_000
FILE_BYTES_MAX = 64 * 1024 * 1024
# The endings of files that may be workflows, of which one may be meant by a name that does not exist.
_SUFFIXES = (".yaml", ".yml", ".json", ".json5", ".kdl", ".py")

# A file with a syntax error counts as a workflow if it has a list of steps, ours or of another system.
_STEPS = lazy_regex(
    r"""^[ \t{]*["']?(?:steps|jobs|workflow|commands|tasks|nodes|phases|agent_template)["']?[ \t]*:"""
    r"""|^[ \t]*-[ \t]+(?:step|shell|claude)[ \t]*:|^[ \t]*job[ \t]+["']""",
    re.MULTILINE,
)

# Parses a file into the tree of a workflow: `parse`, or a function that also translates.
Reader: TypeAlias = Callable[[Source], Node]


def load(path: str | Path, *, text: str | None = None) -> Workflow:
    """The checked workflow in a file, or in `text` instead of its content. LanguageError if it is refused."""
    return examine(path, text=text).workflow


def lint(path: str | Path) -> list[Problem]:
    """The warnings about a file; their codes begin with `warning.`. LanguageError if it is refused."""
    return list(examine(path).warnings)


def examine(
    path: str | Path, *, text: str | None = None, read: Reader = parse, digests: dict[str, str] | None = None
) -> LoadResult:
    """The checked workflow in a file, with its warnings. `read` also parses the files it includes.

    `digests` gets the digest of the content of each, by its path.
    """
    path = Path(path)
    if text is None and (file := python_files.as_python_file(path)) is not None:
        file_bytes(file.path)  # refuse an unreadable file before a process is started
        built = python_files.build(file)
        return LoadResult(built.workflow, built.warnings)
    data = file_bytes(path) if text is None else text.encode("utf-8", "surrogatepass")
    files = IncludedFiles(path.parent, (path.resolve(),), {}, read, digests)
    files.note(path, data)
    with pause_garbage_collection():
        return _load(data, path, files)


def file_bytes(path: Path) -> bytes:
    """The content of the file. LanguageError if it cannot be read."""
    try:
        return _read_at_most(path)
    except OSError as error:
        hint = _similar_file(path) if isinstance(error, FileNotFoundError) else ""
        raise LanguageError([Problem("language.unreadable", _error_reason(error), str(path), hint=hint)]) from None


def _similar_file(path: Path) -> str:
    """The file of the same folder that was meant, as a hint."""
    try:
        names = sorted(name for name in os.listdir(path.parent) if name.endswith(_SUFFIXES))
    except OSError:
        return ""
    # The endings are alike, and say nothing.
    by_stem = {Path(name).stem: name for name in names}
    meant = closest(path.stem, by_stem)
    return f"did you mean '{path.with_name(by_stem[meant])}'?" if meant else ""


def _read_at_most(path: Path) -> bytes:
    """The content of a file, cut just above the largest allowed size: a pipe may never end."""
    with open(path, "rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


def load_text(text: str | bytes, file: str = "<text>") -> Workflow:
    """The checked workflow in a text. Included files are relative to the folder of `file`."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    with pause_garbage_collection():
        return _load(data, Path(file), IncludedFiles(Path(file).parent, (Path(file).resolve(),), {})).workflow


def _load(data: bytes, path: Path, files: IncludedFiles) -> LoadResult:
    source, root = read_tree(data, path, files.read)
    return _check(source, root, path, files)


def _check(source: Source, root: Node, path: Path, files: IncludedFiles) -> LoadResult:
    name = path.name.partition(".")[0] or "workflow"
    workflow = read_workflow(root, source, "workflow" if name.startswith("<") else name, files)
    return LoadResult(workflow, tuple(sorted(source.warnings, key=lambda warning: (warning.line, warning.column))))


def read_tree(data: bytes, path: Path, read: Reader) -> tuple[Source, Node]:
    """The source and tree of a file. LanguageError if it cannot be parsed."""
    try:
        source = _decode(data, path)
        return source, read(source)
    except Refusal as refusal:
        raise LanguageError([refusal.problem]) from None


def _decode(data: bytes, path: Path) -> Source:
    if len(data) > FILE_BYTES_MAX:
        raise Refusal(Problem("language.too_large", f"the file has more than {FILE_BYTES_MAX >> 20} MiB", str(path)))
    return decode(data, str(path))


class LoadedFile(NamedTuple):
    """A loaded file: its workflow, the depth of its includes, and their total number."""

    workflow: Workflow
    depth: int
    size: int
    # Of its content, where somebody wants to know it.
    digest: str = ""


class IncludedFiles:
    """Loads the files that the last file of `stack` includes. A file that includes itself is refused."""

    def __init__(
        self,
        folder: Path,
        stack: tuple[Path, ...],
        known: dict[Path, LoadedFile],
        read: Reader = parse,
        digests: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.stack = stack
        self.known = known
        self.read = read
        self.digests = digests
        self.depth = 0
        self.size = 1

    def note(self, path: Path, data: bytes) -> None:
        """Note what was read, if somebody wants to know."""
        if self.digests is not None:
            self.digests[str(path)] = digest_of(data)

    def child(self, file: str, node: Node, source: Source) -> Workflow:
        path = self.folder / file
        if is_reference(file) and (source.is_alone or not path.exists()):
            return self._published(file, node, source)
        source.refuse_other_file(file, node)
        real = self._resolve(path, file, node, source)
        if real not in self.known:
            self.known[real] = self._load_child(path, real, file, node, source)
        child = self.known[real]
        if self.digests is not None:
            # By this path it may be another file later.
            self.digests[str(path)] = child.digest
        self.refuse_too_deep(len(self.stack) + child.depth, node, source)
        self.depth = max(self.depth, child.depth + 1)
        self.size += child.size
        if self.size > INCLUDES_MAX:
            raise source.refuse("include", f"more than {INCLUDES_MAX:,} workflows are included", node)
        return child.workflow

    def _published(self, file: str, node: Node, source: Source) -> Workflow:
        """A workflow of the catalogue, which has its own children."""
        try:
            found = find_published(file)
        except LanguageError as error:
            problem = error.problems[0]
            raise source.refuse("include", problem.message, node, hint=problem.hint) from None
        if self.digests is not None:
            # No file has this: what includes it is read anew each time.
            self.digests[file] = ""
        self.size += 1
        return found

    def refuse_too_deep(self, depth: int, node: Node, source: Source) -> None:
        if depth > INCLUDE_DEPTH_MAX:
            message = f"workflows include each other more than {INCLUDE_DEPTH_MAX} deep"
            raise source.refuse("include_depth", message, node)

    def _resolve(self, path: Path, file: str, node: Node, source: Source) -> Path:
        try:
            real = path.resolve()
        except (OSError, ValueError, RuntimeError):
            raise source.refuse("include", f"'{file}' is not the name of a file", node) from None
        if real in self.stack:
            way = " → ".join(each.name for each in (*self.stack[self.stack.index(real) :], real))
            raise source.refuse("include_cycle", f"'{file}' includes itself: {way}", node)
        self.refuse_too_deep(len(self.stack), node, source)
        return real

    def _load_child(self, path: Path, real: Path, file: str, node: Node, source: Source) -> LoadedFile:
        try:
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise OSError  # a pipe is allowed on the command line, but not as an include
            data = _read_at_most(path)
        except (OSError, ValueError) as error:
            raise source.refuse("include", f"'{file}': {_error_reason(error)}", node) from None
        try:
            inner = IncludedFiles(path.parent, (*self.stack, real), self.known, self.read, self.digests)
            child, root = self._read_child(data, path, file, node, source)
            digest = "" if self.digests is None else digest_of(data)
            return LoadedFile(_check(child, root, path, inner).workflow, inner.depth, inner.size, digest)
        except LanguageError as error:
            source.problems.extend(error.problems[1:])
            raise Refusal(error.problems[0]) from None

    def _read_child(self, data: bytes, path: Path, file: str, node: Node, source: Source) -> tuple[Source, Node]:
        """The tree of an included file. The content of a file that is not a workflow is never shown."""
        try:
            child = _decode(data, path)
            root = self.read(child)
        except Refusal as refusal:
            if not _STEPS.search(data.decode("utf-8", "replace")):
                raise _refuse_not_a_workflow(path, file, node, source) from None
            raise LanguageError([refusal.problem]) from None
        if not child.origin and not (isinstance(root, Mapping) and "steps" in root.entries):
            raise _refuse_not_a_workflow(path, file, node, source)
        return child, root


def _refuse_not_a_workflow(path: Path, file: str, node: Node, source: Source) -> Refusal:
    hint = f"a workflow has 'steps:'; to check this file: mulligan validate {shlex.quote(str(path))}"
    return source.refuse("include", f"'{file}' is not a workflow", node, hint=hint)


def _error_reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "this is a folder, not a file"
    if isinstance(error, PermissionError):
        return "no permission to read the file"
    return "the file cannot be read"
