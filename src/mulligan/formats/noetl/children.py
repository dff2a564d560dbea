"""Other playbooks that a playbook calls: NoETL finds them in its catalog, and we beside the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from mulligan.core.model.workflow import END
from mulligan.errors import LanguageError
from mulligan.formats.recognition import recognised
from mulligan.language.document import parse
from mulligan.language.loading import file_bytes, read_tree
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, Source, describe, shorten
from mulligan.language.suggestions import did_you_mean

_SUFFIXES = ("", ".yaml", ".yml")
# A folder of thousands is no catalog.
_FILES_MAX = 500


class Child(msgspec.Struct, frozen=True):
    """A file that is called, relative to the one that calls it. `steps` are those of a playbook; None: it is none."""

    file: str
    steps: tuple[str, ...] | None = None

    def refuse_unknown_step(self, node: Scalar, source: Source) -> None:
        # Every playbook has an `end`, whether it is written or not.
        if self.steps is not None and node.text not in (*self.steps, END):
            hint = did_you_mean(node.text, self.steps)
            message = f"'{self.file}' has no step '{shorten(node.text)}'"
            raise source.refuse("unknown_step", message, node, hint=hint)


def find_child(node: Node | None, tool: Mapping, source: Source) -> Child:
    """The file that `path` names: as it is, with .yaml, or by what a file beside this one says that it is called."""
    if node is None:
        raise source.refuse("missing_key", "the tool 'playbook' has no 'path'", tool, hint="add 'path: …'")
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or "{{" in node.text:
        message = f"'path' is {describe(node)}, the name of a file is expected"
        raise source.refuse("noetl", message, node, hint="which playbook it is must be known when the file is read")
    folder, path = Path(source.file).parent, node.text.strip()
    for suffix in _SUFFIXES:
        if (folder / f"{path}{suffix}").is_file():
            return _child(folder, f"{path}{suffix}")
    for file, root in _playbooks(folder):
        if path in _names(root):
            return Child(file, _steps(root))
    message = f"there is no playbook '{shorten(path)}'"
    hint = f"looked for '{path}.yaml' beside this file, and for a file there whose 'metadata.path' or name is that"
    raise source.refuse("noetl", message, node, hint=hint)


def _child(folder: Path, file: str) -> Child:
    root = _tree(folder / file)
    return Child(file, _steps(root) if root is not None and recognised(root) == "noetl" else None)


def _playbooks(folder: Path) -> Iterator[tuple[str, Mapping]]:
    files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES[1:])
    for path in files[:_FILES_MAX]:
        root = _tree(path)
        if root is not None and recognised(root) == "noetl":
            yield path.name, root


def _tree(path: Path) -> Mapping | None:
    """What a file says; None where nobody can read it, which is said when it is loaded."""
    try:
        _, root = read_tree(file_bytes(path), path, parse)
    except LanguageError:
        return None
    return root if isinstance(root, Mapping) else None


def _names(root: Mapping) -> set[str]:
    metadata = root.get("metadata")
    said = [of.get(key) for of in (root, metadata) if isinstance(of, Mapping) for key in ("path", "name")]
    return {node.text for node in said if isinstance(node, Scalar)}


def _steps(root: Mapping) -> tuple[str, ...]:
    steps = root.get("workflow")
    named = [
        step.get("step") for step in (steps.items if isinstance(steps, Sequence) else ()) if isinstance(step, Mapping)
    ]
    return tuple(node.text for node in named if isinstance(node, Scalar))
