"""Find a called playbook: beside the file that calls it, or in the catalogue, a folder with playbooks below it.

NoETL keeps playbooks in a catalogue, by their paths. Here it is the folder that `--catalogue` names; otherwise the
folders above the file are searched, up to the root of its repository; without one, up to the nearest that holds
playbooks beside the way to the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import msgspec

from mulligan.errors import LanguageError
from mulligan.formats.noetl.yaml_1_1 import parse
from mulligan.formats.recognition import recognize
from mulligan.language.loading import file_bytes, read_tree
from mulligan.language.text.nodes import Mapping, Scalar, Sequence
from mulligan.language.text.suggestions import quote_list

_YAML = (".yaml", ".yml")
_SUFFIXES = ("", *_YAML)
# How much is looked at below one folder.
_FILES_MAX = 2000
_FOLDERS_MAX = 2000
_DEPTH_MAX = 8
_PASSED_BY = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
# In every playbook, as its `apiVersion`.
_MARK = b"noetl.io/"


class Child(msgspec.Struct, frozen=True):
    """A called file, relative to the caller. Of a playbook its steps and the keys of its workload; None of others."""

    file: str
    steps: tuple[str, ...] | None = None
    workload: tuple[str, ...] | None = None


class Ambiguous(Exception):
    """Several playbooks have the path. `files` are relative to the catalogue."""

    def __init__(self, files: list[str]) -> None:
        super().__init__(quote_list(files, "and"))


def find_playbook(path: str, caller: Path, catalogue: Path | None) -> Child | None:
    """The playbook of this path; None where there is none. Ambiguous where there are several."""
    folder = caller.parent
    for suffix in _SUFFIXES:
        if path and (folder / f"{path}{suffix}").is_file():
            return _child(folder / f"{path}{suffix}", f"{path}{suffix}")
    beside = next((file for file in _yaml_files(folder, depth_max=0) if _is_called(file, path, "path", "name")), None)
    if beside is not None:
        return _child(beside, beside.name)
    if not path or Path(path).is_absolute() or ".." in Path(path).parts:
        return None
    found = _in_catalogue(path, catalogue) if catalogue is not None else _above(path, folder.resolve())
    return None if found is None else _child(found, Path(os.path.relpath(found, folder.resolve())).as_posix())


def _in_catalogue(path: str, catalogue: Path) -> Path | None:
    catalogue = catalogue.resolve()
    files = list(_yaml_files(catalogue))
    return _file_of(path, catalogue) or _only(files, path, "path", catalogue) or _only(files, path, "name", catalogue)


def _above(path: str, folder: Path) -> Path | None:
    """The file of this path below the nearest folder above that has it. The home folder is no catalogue."""
    ends = {Path.home().resolve(), Path(gettempdir()).resolve(), Path(folder.anchor)}
    has_repository = any((one / ".git").exists() for one in (folder, *folder.parents))
    below = folder
    for one in (folder, *folder.parents):
        if one in ends:
            return None
        files = list(_yaml_files(one))
        found = _file_of(path, one) or _only(files, path, "path", one)
        if found is not None:
            return found
        others = [file for file in files if not file.is_relative_to(below)]
        # Without a repository, the nearest folder that holds playbooks beside the way to the file.
        is_full = one != folder and any(_MARK in _bytes_of(file) for file in others)
        if (one / ".git").exists() if has_repository else is_full:
            return None
        below = one
    return None


def _file_of(path: str, catalogue: Path) -> Path | None:
    return next((file for suffix in _SUFFIXES if (file := catalogue / f"{path}{suffix}").is_file()), None)


def _only(files: list[Path], path: str, key: str, catalogue: Path) -> Path | None:
    """The file that has this path under the key, if there is one. Ambiguous where there are several."""
    found = [file for file in files if _is_called(file, path, key)]
    if len(found) > 1:
        raise Ambiguous([file.relative_to(catalogue).as_posix() for file in found])
    return found[0] if found else None


def _yaml_files(folder: Path, depth_max: int = _DEPTH_MAX) -> Iterator[Path]:
    """The YAML files in a folder and below it, in the order of their names. Hidden folders are left out."""
    found = ahead = 0
    for at, names, files in os.walk(folder):
        depth = len(Path(at).relative_to(folder).parts)
        ahead += len(names)
        names[:] = sorted(one for one in names if not one.startswith(".") and one not in _PASSED_BY)
        if depth >= depth_max or ahead > _FOLDERS_MAX:
            names.clear()
        for name in sorted(files):
            # Reading a pipe could wait for ever.
            if name.endswith(_YAML) and Path(at, name).is_file():
                yield Path(at, name)
                found += 1
                if found >= _FILES_MAX:
                    return


def _is_called(file: Path, path: str, *keys: str) -> bool:
    """Whether it is a playbook with this text under one of these keys. Few files are parsed for it."""
    if path.encode() not in _bytes_of(file):
        return False
    root = _tree(file)
    if root is None or recognize(root) != "noetl":
        return False
    # In the file, or in its metadata.
    nodes = [of.get(key) for of in (root, root.get("metadata")) if isinstance(of, Mapping) for key in keys]
    return any(isinstance(node, Scalar) and node.text == path for node in nodes)


def _bytes_of(file: Path) -> bytes:
    try:
        return file_bytes(file)
    except LanguageError:
        return b""


def _child(file: Path, name: str) -> Child:
    root = _tree(file)
    if root is None or recognize(root) != "noetl":
        return Child(name)
    workload = root.get("workload")
    return Child(name, _steps(root), tuple(workload.entries) if isinstance(workload, Mapping) else ())


def _tree(path: Path) -> Mapping | None:
    """The tree of a file; None where it cannot be read. Loading it reports the problem."""
    try:
        _, root = read_tree(file_bytes(path), path, parse)
    except LanguageError:
        return None
    return root if isinstance(root, Mapping) else None


def _steps(root: Mapping) -> tuple[str, ...]:
    steps = root.get("workflow")
    listed = steps.items if isinstance(steps, Sequence) else []
    named = [step.get("step") for step in listed if isinstance(step, Mapping)]
    return tuple(node.text for node in named if isinstance(node, Scalar))
