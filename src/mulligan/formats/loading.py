"""Load the file of any system as a workflow, and convert foreign files into text of ours."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mulligan.core.model.workflow import END
from mulligan.errors import InputInvalid, LanguageError, Problem, bounded, first_of_each_kind
from mulligan.formats.recognition import advice, check_system, is_ours, other_advice, recognize, recognize_added
from mulligan.formats.table import BROKEN_PACKAGE, FORMATS, NOETL, OURS, added_names, find_format, title_of
from mulligan.formats.translation import Translation, scalar
from mulligan.language import loading
from mulligan.language.checked_files import LoadResult
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.language.loading import file_bytes, read_tree
from mulligan.language.python import python_files
from mulligan.language.python.python_limits import LIMIT_ERRORS, refuse_excess
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import NAMED_FILES, Mapping, Node, Refusal, Scalar, Sequence, Source, TooManyProblems
from mulligan.language.text.step_positions import line_of_step, step_nodes
from mulligan.plugins import FormatPlugin, PluginError, describe_error, load_object

# What parses a file that is not YAML, by the ending of its name.
_SYNTAXES = {
    ".json": "mulligan.formats.json5_text:parse_json",
    ".json5": "mulligan.formats.json5_text:parse",
    **{suffix: call for system in FORMATS.values() for suffix, call in system.syntaxes.items()},
}
_YAML = frozenset({"", ".yaml", ".yml"})
# Files that begin with this are read as NoETL reads them at once, so that they are not parsed twice.
_NOETL_MARK, _MARK_CHARS = "noetl.io/", 2000


def examine(
    path: str | Path,
    *,
    named: str | None = None,
    text: str | None = None,
    trust_templates: bool = False,
    catalogue: Path | None = None,
    given: Dict[str, Any] | None = None,
    options: Dict[str, Any] | None = None,
    is_alone: bool = False,
    digests: dict[str, str] | None = None,
) -> LoadResult:
    """What `reading.examine` returns, read anew. `digests` gets those of all files that were read, by their paths."""
    reader = _reader(Path(path), named, trust_templates, catalogue, given, options, is_alone)
    return _examine(path, text, reader, digests)


class ReadFiles(NamedTuple):
    """A checked workflow, and the files of which it is made, beside its own: workflows that it calls, and modules."""

    result: LoadResult
    files: tuple[str, ...]
    modules: tuple[str, ...] = ()


def examine_with_files(path: Path, *, named: str | None = None) -> ReadFiles:
    """What `examine` returns, with the files that were read for it. Read anew."""
    python = python_files.as_python_file(path)
    if python is not None:
        _reader(path, named, trust_templates=False).refuse_idle_options()
        file_bytes(python.path)  # refuse an unreadable file before a process is started
        built = python_files.build(python)
        return ReadFiles(LoadResult(built.workflow, built.warnings), (), built.modules)
    found: list[tuple[str, str]] = []
    before = NAMED_FILES.set(found)
    try:
        result = examine(path, named=named)
    finally:
        NAMED_FILES.reset(before)
    return ReadFiles(result, tuple(dict.fromkeys(str(Path(source).parent / file) for source, file in found)))


class LocatedSteps(NamedTuple):
    """A checked workflow with its warnings, and the line of each step of its file, counted from 1."""

    examined: LoadResult
    lines: dict[str, int]


def examine_text(path: str | Path, text: str, *, named: str | None = None) -> LocatedSteps:
    """The checked workflow in a text that stands alone, and where its steps are. LanguageError where it is refused."""
    located = examine_located(path, named=named, text=text)
    examined, written = located.examined, located.lines
    lines = {step.name: written.get(step.name) or written.get(step.sweep, 0) for step in examined.workflow.steps}
    lines[examined.workflow.end.name] = written.get(END, 0)
    return LocatedSteps(examined, {name: line for name, line in lines.items() if line})


class LocatedWorkflow(NamedTuple):
    """A checked workflow with its warnings, the lines of its steps, and the tree and the text of its file.

    The tree is one of ours, with the positions of the file; a Python file has none.
    """

    examined: LoadResult
    lines: dict[str, int]
    tree: Node | None
    text: str


def examine_located(
    path: str | Path,
    *,
    named: str | None = None,
    trust_templates: bool = False,
    catalogue: Path | None = None,
    given: Dict[str, Any] | None = None,
    options: Dict[str, Any] | None = None,
    text: str | None = None,
) -> LocatedWorkflow:
    """What `examine` returns, with what is written where. The lines of a matrix are under its name.

    A `text` is read instead of the file, and stands alone: it names no other file.
    """
    reader = _reader(Path(path), named, trust_templates, catalogue, given, options, is_alone=text is not None)
    python = python_files.as_python_file(Path(path)) if text is None else None
    if python is None:
        examined = _examine(path, text, reader)
        # The line of each step in the tree of the file, by the name that is written there.
        lines = {name: line_of_step(reader.tree, name, step) for name, step in step_nodes(reader.tree).items()}
        return LocatedWorkflow(examined, lines, reader.tree, reader.text if text is None else text)
    reader.refuse_idle_options()
    text = file_bytes(python.path).decode("utf-8", "replace")
    built = python_files.build(python)
    return LocatedWorkflow(LoadResult(built.workflow, built.warnings), built.lines, None, text)


def _examine(path: str | Path, text: str | None, reader: _Reader, digests: dict[str, str] | None = None) -> LoadResult:
    try:
        examined = loading.examine(path, text=text, read=reader, digests=digests)
    except LanguageError as refused:
        raise reader.explain(refused) from None
    reader.refuse_idle_options()
    return examined


# How many warnings of one kind a converted file begins with: it is kept, and read when the original is gone.
WRITTEN_WARNINGS_MAX = 100


# What `Converted` says of a Python file, which belongs to no other system.
PYTHON = "python"


class Converted(NamedTuple):
    """The text of a file of ours, and what it was made of: a system or `PYTHON`; "" where it was ours already."""

    text: str
    origin: str
    warnings: tuple[Problem, ...]


def convert(
    path: str | Path,
    *,
    named: str | None = None,
    text: str | None = None,
    trust_templates: bool = False,
    catalogue: Path | None = None,
    is_alone: bool = False,
) -> Converted:
    """A foreign or a Python file as one of ours, which runs the same. LanguageError where it is refused.

    A file of ours comes back unchanged. `text` and `is_alone` are those of `examine`.
    """
    path = Path(path)
    python = python_files.as_python_file(path)
    if python is not None and text is None:
        _reader(path, named, trust_templates, catalogue).refuse_idle_options()
        file_bytes(python.path)  # refuse an unreadable file before a process is started
        built = python_files.build(python, with_keys=True)
        # Its steps still call the functions of their modules.
        root = parse_file(Source(msgspec.json.encode(built.keys).decode(), f"{python.path.stem}.json"))
        text = _write_yaml(root, {}, f"Made from {python.path.name} by `mulligan convert`.")
        return Converted(text, PYTHON, built.warnings)
    workflow, warnings = examine(
        path, named=named, text=text, trust_templates=trust_templates, catalogue=catalogue, is_alone=is_alone
    )
    if not workflow.origin and text is not None:
        return Converted(text, "", warnings)
    if not workflow.origin:
        return Converted(decode(file_bytes(path), str(path)).text, "", warnings)
    reader = _reader(path, named, trust_templates, catalogue, is_alone=is_alone)
    data = file_bytes(path) if text is None else text.encode("utf-8", "surrogatepass")
    with pause_garbage_collection():
        _, root = read_tree(data, path, reader)
    if isinstance(root, Mapping) and "name" not in root.entries:
        # It was named after its file, and the converted file will have another name.
        root.entries = {"name": (scalar("name", root), scalar(workflow.name, root)), **root.entries}
    # Warnings that stand above no node go to the head of the file, with their line in the original.
    placed = {text for texts in reader.remarks.values() for text in texts}
    shown, more = first_of_each_kind([one for one in warnings if one.message not in placed], WRITTEN_WARNINGS_MAX)
    unplaced = [f"line {one.line}: {bounded(one.message)}" for one in shown]
    unplaced += [f"and {count:,} more warnings of the kind {code}" for code, count in more.items()]
    made = f"Converted from {path.name} ({title_of(workflow.origin)}) by `mulligan convert`."
    header = "\n".join([made, *unplaced])
    text = _write_yaml(root, reader.remarks, header)
    shorter = reader.fold(root)
    if shorter is not None:
        folded = _write_yaml(shorter, reader.remarks, header)
        text = folded if reader.are_same(path, text, folded) else text
    return Converted(text, workflow.origin, warnings)


def _write_yaml(root: Node, remarks: dict[int, list[str]], header: str) -> str:
    # Only `convert` writes.
    from mulligan.formats.writing import write_yaml

    return write_yaml(root, remarks, header)


def parse_file(source: Source, named: str | None = None) -> Node:
    """The tree of a file, in whatever syntax it is written. `named` is its system, where that is known."""
    suffix = Path(source.file).suffix.lower()
    if call := _SYNTAXES.get(suffix):
        result: Node = load_object(call)(source)
        return result
    if suffix not in _YAML:
        for name in added_names() if named is None else [named]:
            try:
                system = find_format(name)
            except PluginError:
                continue  # reported if nothing else recognizes the file
            if system is not None and suffix in system.syntaxes:
                return _call(system, system.syntaxes[suffix], source, source)
    return parse(source)


def _reader(
    path: Path,
    named: str | None,
    trust_templates: bool,
    catalogue: Path | None = None,
    given: Dict[str, Any] | None = None,
    options: Dict[str, Any] | None = None,
    is_alone: bool = False,
) -> _Reader:
    if catalogue is not None and not catalogue.is_dir():
        raise InputInvalid(f"--catalogue names '{catalogue}', which is not a folder")
    if named is not None and check_system(named) != OURS and python_files.as_python_file(path) is not None:
        message = f"this is a Python file, and {title_of(named)} has none"
        raise LanguageError([Problem("language.format", message, str(path))])
    return _Reader(str(path), named, trust_templates, catalogue, given, options or {}, is_alone)


class _Reader(msgspec.Struct, eq=False):
    """Reads a file and those that it includes: recognizes and translates each. `_named` is the system of the first."""

    _first: str
    _named: str | None
    _trusts_templates: bool
    _catalogue: Path | None
    _given: Dict[str, Any] | None
    _options: Dict[str, Any]
    _is_alone: bool
    _advice: str = ""
    _plugin_problems: list[str] = []
    _translations: list[Translation] = []
    # Of the first file, as one of ours; and its text.
    tree: Node | None = None
    text: str = ""

    @property
    def remarks(self) -> dict[int, list[str]]:
        """The comments that belong above nodes of the trees, by their identity."""
        return {node: texts for each in self._translations for node, texts in each.remarks.items()}

    def fold(self, root: Node) -> Mapping | None:
        """A shorter tree of the first file that may say the same; None if there is none."""
        first = self._translations[0]
        found = first.fold() if first.fold is not None and isinstance(root, Mapping) else None
        if found is not None and isinstance(root, Mapping):
            # What was added to the tree since then.
            found.entries = {**root.entries, "steps": found.entries["steps"]}
        return found

    def are_same(self, path: Path, text: str, folded: str) -> bool:
        """Whether two texts of ours are the same workflow."""
        is_same = self._translations[0].is_same
        beside = path.with_suffix(".yaml")
        try:
            one, other = (loading.examine(beside, text=each).workflow for each in (text, folded))
        except LanguageError:
            return False
        return is_same is not None and is_same(one, other)

    def __call__(self, source: Source) -> Node:
        source.is_alone = self._is_alone
        is_first = source.file == self._first
        named = self._named if is_first else None
        found = _parse_as_other_yaml(source) if named is None and _NOETL_MARK in source.text[:_MARK_CHARS] else None
        if found is not None:
            root, origin = found
        else:
            root, origin = self._parse(source, named, is_first=is_first)
        if origin:
            source.origin = origin
            root = self._translate(root, source)
        if is_first:
            self.tree, self.text = root, source.text
        return root

    def _parse(self, source: Source, named: str | None, *, is_first: bool) -> tuple[Node, str]:
        """The tree of a file, as its system reads it, and the system."""
        source.warnings.clear()  # of an attempt to read it as the file of another system
        try:
            root = parse_file(source, named)
        except Refusal:
            # The system of the file may allow what YAML 1.2 refuses, such as a key that appears twice.
            found = _parse_as_other_yaml(source, named)
            if found is None:
                raise
            return found
        origin = self._origin(root, is_first=is_first)
        return _parse_own_yaml(source, origin) or root, origin

    def _origin(self, root: Node, *, is_first: bool) -> str:
        if is_first and self._named is not None:
            self._advice = other_advice(root, self._named)
            return "" if self._named == OURS else self._named
        origin = recognize(root)
        if not origin and not is_ours(root):
            origin, self._plugin_problems = recognize_added(root)
            if is_first and not origin:
                self._advice = advice(root)
        return origin

    def explain(self, refused: LanguageError) -> LanguageError:
        """The refusal of a file, with a hint at the system that it could belong to.

        A file that nothing recognizes may belong to a package that does not load: then that is the one error.
        """
        if self._plugin_problems:
            message = f"the file is not recognized, and {'; '.join(self._plugin_problems)}"
            hint = f"{BROKEN_PACKAGE}; or say which system the file is of, such as --format {OURS}"
            return LanguageError([Problem("language.format", message, self._first, hint=hint)])
        first, *others = refused.problems
        if not self._advice:
            return refused
        joined = f"{first.hint} {self._advice}" if first.hint.endswith("?") else f"{first.hint}; {self._advice}"
        return LanguageError([msgspec.structs.replace(first, hint=joined if first.hint else self._advice), *others])

    def refuse_idle_options(self) -> None:
        """Refuse options for files of one system where no file is one: the user takes the file for something else."""
        option = "--trust-templates" if self._trusts_templates else "--catalogue" if self._catalogue is not None else ""
        if option and not any(each.source.origin == NOETL for each in self._translations):
            message = f"{option} is for NoETL files, and this is not one"
            raise LanguageError([Problem("language.format", message, self._first)])
        system = find_format(self._translations[0].source.origin) if self._translations else None
        for name in self._options:
            if system is None or name not in system.options:
                theirs = [each.title for each in FORMATS.values() if name in each.options]
                message = f"--{name.replace('_', '-')} is for {' and '.join(theirs)} files, and this is not one"
                raise LanguageError([Problem("language.format", message, self._first)])

    def _translate(self, root: Node, source: Source) -> Node:
        is_included = source.file != self._first
        system = find_format(source.origin)
        assert system is not None, f"'{source.origin}' was found a moment ago"
        options = {} if is_included else {key: self._options[key] for key in system.options if key in self._options}
        translation = Translation(
            source,
            is_included=is_included,
            trusts_templates=self._trusts_templates,
            catalogue=self._catalogue,
            # The inputs of a called file are those that its caller gives it.
            given={} if is_included else self._given or {},
            options=options,
        )
        try:
            ours = _call(system, system.translate, source, root, translation)
        except Refusal as refusal:
            source.problems.append(refusal.problem)
        except TooManyProblems:
            pass  # the problems so far are enough
        except LIMIT_ERRORS as error:
            source.problems.append(refuse_excess(error, source).problem)
        if source.problems:
            raise LanguageError(source.problems)
        self._translations.append(translation)
        return ours


def _parse_own_yaml(source: Source, origin: str) -> Node | None:
    """The tree of a YAML file as its system reads it; None where that is YAML 1.2, or the file is not YAML."""
    system = find_format(origin) if origin and Path(source.file).suffix.lower() in _YAML else None
    return None if system is None or system.yaml is None else _call(system, system.yaml, source, source)


def _parse_as_other_yaml(source: Source, named: str | None = None) -> tuple[Node, str] | None:
    """The tree of a file that is not YAML 1.2, and its system, where a system reads it; otherwise None."""
    for name in FORMATS if named is None else [named]:
        try:
            root = _parse_own_yaml(source, name)
        except (Refusal, LanguageError):
            continue
        if root is not None and (named is not None or recognize(root) == name):
            return root, name
    return None


def _call(system: FormatPlugin, function: str, source: Source, *args: Any) -> Node:
    """Call a function of a system that returns a tree. LanguageError where it cannot be imported, or is broken."""
    hint = ""
    try:
        tree = load_object(function)(*args)
        if isinstance(tree, Scalar | Sequence | Mapping):
            return tree
        message = f"the package for {system.title} files returned a {type(tree).__name__}, not a tree"
    except (Refusal, TooManyProblems, LanguageError):
        raise
    except Exception as error:
        if system.install and isinstance(error, ModuleNotFoundError):
            message = f"{system.title} files need '{error.name}', which is not installed"
            hint = f"pip install '{system.install}'"
        elif system in FORMATS.values():
            raise  # a bug of ours
        else:
            message = f"the package for {system.title} files failed: {describe_error(error)}"
    raise LanguageError([Problem("language.format", message, source.file, hint=hint)])
