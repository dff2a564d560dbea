"""Files into workflows: the file itself, and the files it includes, each loaded once."""

from __future__ import annotations

import gc
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError, Problem
from mulligan.language import python_files
from mulligan.language.document import decode, parse
from mulligan.language.nodes import Mapping, Node, Refusal, Source
from mulligan.language.workflows import read_workflow

INCLUDE_DEPTH_MAX = 16
# Each place that names a file holds a copy of it: files that name others twice double at each level.
INCLUDES_MAX = 10_000
FILE_BYTES_MAX = 64 * 1024 * 1024

# A file whose syntax is wrong is a workflow if it has a list of what is to be done, ours or another system's.
_STEPS = lazy_regex(
    r"""^[ \t{]*["']?(?:steps|jobs|workflow|commands|tasks|nodes|phases|agent_template)["']?[ \t]*:"""
    r"""|^[ \t]*-[ \t]+(?:step|shell|claude)[ \t]*:|^[ \t]*job[ \t]+["']""",
    re.MULTILINE,
)

# What makes the tree of a workflow of a file's text: `parse`, or something that translates as well.
Reader: TypeAlias = Callable[[Source], Node]


class LoadResult(NamedTuple):
    """A checked workflow, and what is lawful in its file and most likely a slip, in the order of the file."""

    workflow: Workflow
    warnings: tuple[Problem, ...]


def load(path: str | Path, *, text: str | None = None) -> Workflow:
    """The checked workflow in a file; `text` stands for what is in it. LanguageError where it is refused."""
    return examine(path, text=text).workflow


def lint(path: str | Path) -> list[Problem]:
    """The warnings about a file: their codes begin with `warning.`. LanguageError where it is refused."""
    return list(examine(path).warnings)


def examine(path: str | Path, *, text: str | None = None, read: Reader = parse) -> LoadResult:
    """The checked workflow in a file with its warnings, in one reading. `read` also reads the files it includes."""
    path = Path(path)
    if path.suffix == python_files.SUFFIX and text is None:
        return _build_python_file(path)
    data = file_bytes(path) if text is None else _encode(text)
    with pause_garbage_collection():
        return _load(data, path, IncludedFiles(path.parent, (path.resolve(),), {}, read))


def file_bytes(path: Path) -> bytes:
    """What is in the file. LanguageError where it cannot be read."""
    try:
        return _read_at_most(path)
    except OSError as error:
        raise LanguageError([Problem("language.unreadable", _error_reason(error), str(path))]) from None


def _read_at_most(path: Path) -> bytes:
    """All of a file that is no larger than it may be; of one that never ends, enough to know that it is."""
    with open(path, "rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


def _build_python_file(path: Path) -> LoadResult:
    file_bytes(path)
    return LoadResult(*python_files.build(path))


def load_text(text: str | bytes, file: str = "<text>") -> Workflow:
    """The checked workflow in a text. IncludedFiles that it includes are looked for in the current folder."""
    data = text if isinstance(text, bytes) else _encode(text)
    with pause_garbage_collection():
        return _load(data, Path(file), IncludedFiles(Path(file).parent, (Path(file).resolve(),), {})).workflow


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """A large file is hundreds of thousands of objects and no garbage: looking for some takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _load(data: bytes, path: Path, files: IncludedFiles) -> LoadResult:
    source, root = read_tree(data, path, files.read)
    return _check(source, root, path, files)


def _check(source: Source, root: Node, path: Path, files: IncludedFiles) -> LoadResult:
    name = path.name.partition(".")[0] or "workflow"
    workflow = read_workflow(root, source, "workflow" if name.startswith("<") else name, files)
    return LoadResult(workflow, tuple(sorted(source.warnings, key=lambda warning: (warning.line, warning.column))))


def read_tree(data: bytes, path: Path, read: Reader) -> tuple[Source, Node]:
    """What a file says, as a tree. LanguageError where nobody can read it."""
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
    """A file that was loaded: its workflow, how many files deep what it includes goes, and how many that are in all."""

    workflow: Workflow
    depth: int
    size: int


class IncludedFiles:
    """The files around one file, which is the last of `stack`. A file that leads back to itself is refused."""

    def __init__(
        self, folder: Path, stack: tuple[Path, ...], known: dict[Path, LoadedFile], read: Reader = parse
    ) -> None:
        self.folder = folder
        self.stack = stack
        self.known = known
        self.read = read
        self.depth = 0
        self.size = 1

    def child(self, file: str, node: Node, source: Source) -> Workflow:
        path = self.folder / file
        real = self._resolve(path, file, node, source)
        if real not in self.known:
            self.known[real] = self._load_child(path, real, file, node, source)
        child = self.known[real]
        self._refuse_too_deep(len(self.stack) + child.depth, node, source)
        self.depth = max(self.depth, child.depth + 1)
        self.size += child.size
        if self.size > INCLUDES_MAX:
            raise source.refuse("include", f"more than {INCLUDES_MAX:,} workflows are included", node)
        return child.workflow

    def _refuse_too_deep(self, depth: int, node: Node, source: Source) -> None:
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
        self._refuse_too_deep(len(self.stack), node, source)
        return real

    def _load_child(self, path: Path, real: Path, file: str, node: Node, source: Source) -> LoadedFile:
        try:
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise OSError  # what is typed may be a pipe; what a file includes is a file
            data = _read_at_most(path)
        except (OSError, ValueError) as error:
            raise source.refuse("include", f"'{file}': {_error_reason(error)}", node) from None
        try:
            inner = IncludedFiles(path.parent, (*self.stack, real), self.known, self.read)
            child, root = self._read_child(data, path, file, node, source)
            return LoadedFile(_check(child, root, path, inner).workflow, inner.depth, inner.size)
        except LanguageError as error:
            source.problems.extend(error.problems[1:])
            raise Refusal(error.problems[0]) from None

    def _read_child(self, data: bytes, path: Path, file: str, node: Node, source: Source) -> tuple[Source, Node]:
        """What an included file says. Nothing is shown of one that is no workflow: it may be anybody's."""
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
