"""Workflows that are made of several files: `imports`, `extends`, `template`, and `defaults`.

All of it happens to the tree, before anything is translated: the other files are read, and their keys become keys of
this file. Their nodes keep their places, so a problem in another file is shown there.

| key | what happens |
|---|---|
| `imports` | the steps of the other file come after ours; its variables and parameters are added, ours win |
| `extends` | the base file is the beginning: mappings are merged, texts and lists of ours replace those of the base |
| `template` | its steps come first; `with` gives values for its parameters, `override` for its keys |
| `defaults` | values of parameters, and variables of the environment that nothing else sets |

Files must be below the folder of the project, so that a workflow does not read whatever is on the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from mulligan.core.model.text.formatting import error_reason
from mulligan.formats.prodigy.forms import read_record
from mulligan.formats.prodigy.keys import IMPORT, LISTS, TEMPLATE_USE
from mulligan.formats.translation import Translation, made, mapping, renewed, scalar, sequence, without
from mulligan.language.loading import FILE_BYTES_MAX
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, describe, plain, shorten
from mulligan.language.text.suggestions import did_you_mean, quote_list

COMPOSING = ("imports", "extends", "template", "defaults")
DEPTH_MAX = 10
FILES_MAX = 100
_ENDINGS = ("", ".yml", ".yaml")
# Where Prodigy looks for a base, and for a template.
_BASES = ("bases", "templates", "workflows")
_TEMPLATES = ("templates", ".prodigy/templates")
_REGISTRY = ".prodigy/templates"
_PLAIN_NAME = re.compile(r"[\w.-]+", re.A)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
# Lists of steps that are joined when a file is imported.
_PHASES = ("setup", "reduce")
_MERGED = ("env", "secrets", "profiles", "defaults")


def compose(root: Node, translation: Translation) -> Node:
    """The tree with the other files that it names in it. A tree that names none is returned as it is."""
    if not isinstance(root, Mapping) or not any(key in root.entries for key in COMPOSING):
        return root
    return _Composer(translation.source).whole(root)


class _File(NamedTuple):
    """A file that takes part: its resolved path, its name as written, and its own depth."""

    path: Path
    shown: str
    depth: int


class _Composer:
    """The composition of one workflow."""

    def __init__(self, source: Source) -> None:
        self._source = source
        first = Path(source.file)
        self._folder = _project_folder(first)
        self._open = [_File(first.resolve(), first.name, 0)]
        self._count = 0
        self._aliases: dict[str, tuple[Scalar, Mapping]] = {}
        self._used: set[str] = set()

    def whole(self, root: Mapping) -> Mapping:
        found = _with_defaults(self._composed(root))
        for alias, (node, _) in self._aliases.items():
            if alias not in self._used:
                message = f"nothing uses the file that is imported as '{shorten(alias)}': its steps do not run"
                hint = "remove 'alias' to run them, or name it in 'extends' or 'template'"
                self._source.warn("prodigy", message, node, hint=hint)
        return found

    def _composed(self, root: Mapping) -> Mapping:
        """The tree of one file, with the trees of the files that it names."""
        own = without(root, "imports", "extends", "template")
        imported: Mapping | None = None
        for other in self._imports(root):
            # Of two files with a key the later one counts.
            imported = other if imported is None else _beside(other, imported, self._source, is_first=True)
        if imported is not None:
            own = _beside(own, imported, self._source, is_first=False)
        if (base := root.get("extends")) is not None:
            own = _over(self._read(base, "extends", _BASES), own)
        if (used := root.get("template")) is not None:
            own = _beside(own, self._template(used), self._source, is_first=True)
        return own

    # -- the keys

    def _imports(self, root: Mapping) -> Iterator[Mapping]:
        node = root.get("imports")
        if node is None:
            return
        for entry in node.items if isinstance(node, Sequence) else [node]:
            if isinstance(entry, Scalar):
                yield self._read(entry, "imports", ())
                continue
            form = read_record(IMPORT, entry, "an entry of 'imports'", self._source)
            tree = self._read(form["path"], "imports", ())
            if "alias" in form:
                self._aliases[form["alias"].text] = (form["alias"], tree)
            elif "selective" in form:
                yield self._selected(tree, form.at("selective"))
            else:
                yield tree

    def _selected(self, tree: Mapping, wanted: Node) -> Mapping:
        """The steps and parameters of a file that `selective` names: a step by its name or number, from 0."""
        words = wanted.items if isinstance(wanted, Sequence) else [wanted]
        steps = _steps_of(tree)
        parameters = {_parameter_name(each): (key, each) for key, each in _parameters(tree)}
        chosen: list[Node] = []
        kept: list[tuple[str, Node]] = []
        for word in words:
            assert isinstance(word, Scalar)
            named = [step for step in steps if word.text in _titles(step)]
            if named:
                chosen += named
            elif word.text.isdigit() and int(word.text) < len(steps):
                chosen.append(steps[int(word.text)])
            elif word.text in parameters:
                kept.append(parameters[word.text])
            else:
                known = [title for step in steps for title in _titles(step)] + list(parameters)
                message = f"the file has no step or parameter '{shorten(word.text)}'"
                hint = did_you_mean(word.text, known) or (f"it has {quote_list(known[:8], 'and')}" if known else "")
                raise self._source.refuse("prodigy", message, word, hint=hint)
        found = without(tree, *LISTS, "parameters")
        if chosen:
            found.entries["commands"] = (scalar("commands", tree), made(chosen, tree))
        return _with_parameters(found, kept)

    def _template(self, node: Node) -> Mapping:
        if isinstance(node, Scalar):
            return self._read(node, "template", _TEMPLATES, is_template=True)
        form = read_record(TEMPLATE_USE, node, "'template'", self._source)
        if "source" not in form and "name" not in form:
            hint = "add 'source: FILE'"
            raise self._source.refuse("missing_key", "'template' has no 'source'", form.node, hint=hint)
        where = form.at("source") if "source" in form else form.at("name")
        if isinstance(where, Mapping):
            inner = next((where.get(key) for key in ("file", "registry", "url") if key in where.entries), None)
            if inner is None or len(where.entries) != 1:
                message = "'source' has no file"
                raise self._source.refuse("prodigy", message, where, hint="write 'source: {file: …}'")
            where = inner
        tree = self._read(where, "source", _TEMPLATES, is_template=True)
        if "with" in form:
            tree = self._given(tree, form.at("with"))
        if "override" in form:
            tree = self._overridden(tree, form.at("override"))
        return tree

    def _given(self, tree: Mapping, given: Node) -> Mapping:
        """The template with values for its parameters: they become the defaults of inputs."""
        if not isinstance(given, Mapping):
            raise self._source.refuse("type", f"'with' is {describe(given)}, a mapping is expected", given)
        declared = {_parameter_name(each): each for _, each in _parameters(tree)}
        kept = [(key, each) for key, each in _parameters(tree) if _parameter_name(each) not in given.entries]
        plain_values: dict[str, Scalar] = {}
        for name, (key, value) in given.entries.items():
            if declared and name not in declared:
                hint = did_you_mean(name, declared) or f"it has {quote_list(declared, 'and')}"
                message = f"'{shorten(name)}' is not a parameter of the template"
                self._source.warn("prodigy", message, key, hint=hint)
            own = declared.get(name)
            entries = own.entries if isinstance(own, Mapping) else {"type": (key, scalar("any", key))}
            given_here = {"name": (key, scalar(name, key)), "default": (scalar("default", key), value)}
            kept.append(("optional", renewed({**entries, **given_here}, key)))
            if isinstance(value, Scalar) and not isinstance(value.value, str):
                plain_values[f"${{{name}}}"] = value
        found = _with_parameters(tree, kept)
        # A number is also known where a text would be refused, such as `timeout: ${timeout}`.
        replaced = _replaced(without(found, "parameters"), plain_values) if plain_values else found
        assert isinstance(replaced, Mapping)
        return _with_parameters(replaced, kept)

    def _overridden(self, tree: Mapping, override: Node) -> Mapping:
        if not isinstance(override, Mapping):
            raise self._source.refuse("type", f"'override' is {describe(override)}, a mapping is expected", override)
        for name, (key, value) in override.entries.items():
            path = re.split(r"[.\[\]]+", name.rstrip("]"))
            placed = self._placed(tree, path, key, value)
            assert isinstance(placed, Mapping)
            tree = placed
        return tree

    def _placed(self, node: Node, path: list[str], key: Scalar, value: Node) -> Node:
        """The node with `value` at `path`. What is on the way there must exist."""
        if not path:
            return value
        word, rest = path[0], path[1:]
        if isinstance(node, Mapping) and (not rest or word in node.entries):
            found = without(node, *(LISTS if word in LISTS and not rest else (word,)))
            found.entries[word] = (scalar(word, key), self._placed(node.get(word) or key, rest, key, value))
            return found
        if isinstance(node, Sequence) and word.isdigit() and int(word) < len(node.items):
            listed = sequence(node.items, node)
            listed.items[int(word)] = self._placed(node.items[int(word)], rest, key, value)
            return listed
        message = f"the template has no '{shorten(word)}' to override"
        raise self._source.refuse("prodigy", message, key, hint="name a key or the number of a step, from 0")

    # -- files

    def _read(self, node: Node, key: str, folders: tuple[str, ...], *, is_template: bool = False) -> Mapping:
        """The composed tree of the file that `node` names."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.text.strip():
            raise self._source.refuse("type", f"'{key}' is {describe(node)}, the path of a file is expected", node)
        if node.text in self._aliases and key != "imports":
            self._used.add(node.text)
            return self._aliases[node.text][1]
        path = self._find(node, folders, is_template=is_template)
        opened = [each.path for each in self._open]
        if path in opened:
            way = " → ".join([*(each.shown for each in self._open[opened.index(path) :]), path.name])
            message, hint = f"the file includes itself: {way}", "remove one of them"
            raise self._source.refuse("prodigy", message, node, hint=hint)
        self._count += 1
        is_deep = len(self._open) > DEPTH_MAX
        if is_deep or self._count > FILES_MAX:
            limit = f"files include each other more than {DEPTH_MAX} levels deep"
            message = limit if is_deep else f"the workflow consists of more than {FILES_MAX} files"
            raise self._source.refuse("prodigy", message, node, hint="copy what is used into fewer files")
        tree = self._parsed(path, node)
        self._open.append(_File(path, path.name, len(self._open)))
        try:
            return self._composed(tree)
        finally:
            self._open.pop()

    def _find(self, node: Scalar, folders: tuple[str, ...], *, is_template: bool) -> Path:
        if _URL.match(node.text):
            message, hint = "a file from another host is not loaded", "download it, and name the file"
            raise self._source.refuse("prodigy", message, node, hint=hint)
        self._source.refuse_other_file(shorten(node.text), node)
        beside = self._open[-1].path.parent
        names = [node.text + ending for ending in _ENDINGS]
        tried = [Path(start, folder, name) for folder in ("", *folders) for name in names for start in (beside, "")]
        found = next((path for path in tried if path.is_file()), None)
        if found is not None and not found.resolve().is_relative_to(self._folder):
            message = f"'{shorten(node.text)}' is outside of '{self._folder}', the folder of the project"
            raise self._source.refuse("prodigy", message, node, hint="copy the file into the project")
        if found is None and is_template and _PLAIN_NAME.fullmatch(node.text):
            registered = [Path.home() / _REGISTRY / name for name in names]
            found = next((path for path in registered if path.is_file()), None)
        if found is None:
            looked = f", and none in {quote_list([f'{each}/' for each in folders], 'and')}" if folders else ""
            message = f"there is no file '{shorten(node.text)}'{looked}"
            hint = "write its path relative to this file"
            raise self._source.refuse("prodigy", message, node, hint=hint)
        return found.resolve()

    def _parsed(self, path: Path, node: Scalar) -> Mapping:
        """The tree of a file, its lines shifted behind those that are known already."""
        try:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            message = f"'{shorten(node.text)}' cannot be read: {error_reason(error)}"
            raise self._source.refuse("prodigy", message, node) from None
        if len(data) > FILE_BYTES_MAX:
            message = f"'{shorten(node.text)}' has more than {FILE_BYTES_MAX >> 20} MiB"
            raise self._source.refuse("prodigy", message, node)
        here = Path.cwd().resolve()
        other = decode(data, str(path.relative_to(here) if path.is_relative_to(here) else path))
        tree = parse(other)
        _shift(tree, self._source.include(other))
        if isinstance(tree, Sequence):
            return mapping({"commands": tree}, tree)
        if not isinstance(tree, Mapping):
            message = f"'{shorten(node.text)}' is not a workflow"
            raise self._source.refuse("prodigy", message, node)
        return tree


def _project_folder(first: Path) -> Path:
    """The folder that all files must be in: the checkout of the first file; without Git the folder it is in.

    If that is below the current folder, the current folder counts.
    """
    beside, here = first.resolve().parent, Path.cwd().resolve()
    checkout = next((folder for folder in (beside, *beside.parents) if (folder / ".git").exists()), None)
    return checkout or (here if beside.is_relative_to(here) else beside)


def _shift(node: Node, lines: int) -> None:
    node.line += lines
    if isinstance(node, Sequence):
        for item in node.items:
            _shift(item, lines)
    elif isinstance(node, Mapping):
        for key, value in node.items():
            key.line += lines
            _shift(value, lines)


# -- joining trees ---------------------------------------------------------------------------------------------------


def _over(base: Mapping, own: Mapping) -> Mapping:
    """The base with our keys over it: mappings are merged, everything else is replaced. Our steps replace its steps."""
    has_steps = any(key in own.entries for key in LISTS)
    found = without(base, *LISTS) if has_steps else without(base)
    found.line, found.column = own.line, own.column
    for key, (word, value) in own.entries.items():
        below = found.get(key)
        merged = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
        found.entries[key] = (word, merged)
    return found


def _beside(own: Mapping, other: Mapping, source: Source, *, is_first: bool) -> Mapping:
    """Our tree with the keys of another. Its steps come first, or after ours; where both have a key, ours counts."""
    found = without(own)
    for key, entry in other.entries.items():
        if key in LISTS:
            continue
        mine, theirs = own.get(key), entry[1]
        if mine is None:
            if key not in ("name", "description", "mode"):
                found.entries[key] = entry
        elif key in _MERGED and isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found.entries[key] = (own.key(key), _over(theirs, mine))
        elif key in (*_PHASES, "env_files") and isinstance(mine, Sequence) and isinstance(theirs, Sequence):
            # Of several files with variables the last one counts: ours.
            both = _joined(theirs, mine) if is_first or key == "env_files" else _joined(mine, theirs)
            found.entries[key] = (own.key(key), both)
        elif key in _PHASES:
            message = f"both files have '{key}', and only lists of steps are joined"
            source.note(source.refuse("prodigy", message, own.key(key)))
    if theirs_steps := _steps_of(other):
        name = next((key for key in LISTS if key in own.entries), "commands")
        mine = own.get(name)
        if mine is None or isinstance(mine, Sequence):
            steps = sequence(theirs_steps, own)
            word = own.key(name) if mine is not None else scalar(name, own)
            if mine is not None:
                steps = _joined(steps, mine) if is_first else _joined(mine, steps)
            found.entries[name] = (word, steps)
    known = {_parameter_name(each) for _, each in _parameters(own)}
    theirs_parameters = [each for each in _parameters(other) if _parameter_name(each[1]) not in known]
    if theirs_parameters and known:
        found = _with_parameters(found, [*_parameters(own), *theirs_parameters])
    return found


def _joined(first: Sequence, second: Sequence) -> Sequence:
    return sequence([*first.items, *second.items], second)


def _steps_of(tree: Mapping) -> list[Node]:
    for key in LISTS:
        node = tree.get(key)
        if isinstance(node, Sequence):
            return node.items
    return []


def _titles(step: Node) -> list[str]:
    if not isinstance(step, Mapping):
        return [step.text] if isinstance(step, Scalar) else []
    return [node.text for key in ("id", "name") if isinstance(node := step.get(key), Scalar)]


def _replaced(node: Node, values: dict[str, Scalar]) -> Node:
    """The tree with each text that is one of the references replaced by its value, with the place of the reference."""
    if isinstance(node, Scalar):
        value = values.get(node.text.strip())
        return node if value is None else made(value.value, node)
    if isinstance(node, Sequence):
        return sequence((_replaced(item, values) for item in node.items), node)
    return renewed({key: (word, _replaced(value, values)) for key, (word, value) in node.entries.items()}, node)


# -- parameters ------------------------------------------------------------------------------------------------------


def _parameters(tree: Mapping) -> list[tuple[str, Node]]:
    """The parameters of a file, each with `required` or `optional`, whatever form they are written in."""
    node = tree.get("parameters")
    if not isinstance(node, Mapping):
        return []
    if set(node.entries) <= {"required", "optional"}:
        lists = {key: value for key, (_, value) in node.entries.items()}
        return [(key, each) for key, value in lists.items() if isinstance(value, Sequence) for each in value.items]
    inner = node.get("definitions") if set(node.entries) == {"definitions"} else node
    found: list[tuple[str, Node]] = []
    for name, (word, value) in inner.entries.items() if isinstance(inner, Mapping) else ():
        own = value.entries if isinstance(value, Mapping) else {}
        parameter = renewed({"name": (word, scalar(name, word)), **own}, word)
        found.append(("optional" if "default" in own else "required", parameter))
    return found


def _parameter_name(node: Node) -> str:
    if isinstance(node, Scalar):
        return node.text
    name = node.get("name") if isinstance(node, Mapping) else None
    return name.text if isinstance(name, Scalar) else ""


def _with_parameters(tree: Mapping, parameters: list[tuple[str, Node]]) -> Mapping:
    """The tree with exactly these parameters."""
    found = without(tree, "parameters")
    if parameters:
        lists = {key: [each for kind, each in parameters if kind == key] for key in ("required", "optional")}
        found.entries["parameters"] = (scalar("parameters", tree), made({k: v for k, v in lists.items() if v}, tree))
    return found


def _with_defaults(tree: Mapping) -> Mapping:
    """The tree without `defaults`: they are defaults of its parameters, and variables that nothing sets."""
    defaults = tree.get("defaults")
    if not isinstance(defaults, Mapping):
        return tree
    found = without(tree, "defaults")
    parameters = _parameters(tree)
    names = {_parameter_name(each) for _, each in parameters}
    if names & set(defaults.entries):
        found = _with_parameters(found, [_with_default(kind, each, defaults) for kind, each in parameters])
    others = {name: node for name, (_, node) in defaults.entries.items() if name not in names}
    env = tree.get("env")
    if others:
        # Lists and mappings become JSON.
        texts = {
            name: node if isinstance(node, Scalar) else made(msgspec.json.encode(plain(node)).decode(), node)
            for name, node in others.items()
        }
        below = mapping(texts, defaults)
        key = tree.key("env") if env is not None else scalar("env", defaults)
        found.entries["env"] = (key, _over(below, env) if isinstance(env, Mapping) else below)
    return found


def _with_default(kind: str, parameter: Node, defaults: Mapping) -> tuple[str, Node]:
    name = _parameter_name(parameter)
    if name not in defaults.entries:
        return kind, parameter
    name_alone = mapping({"name": parameter}, parameter)
    own = parameter if isinstance(parameter, Mapping) else name_alone
    return "optional", renewed({**own.entries, "default": defaults.entries[name]}, parameter)
