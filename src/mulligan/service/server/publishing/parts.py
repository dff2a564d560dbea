"""What a workflow file needs of its project: child files, modules, and the data files that its steps declare."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from mulligan.core.model.actions import traits_of
from mulligan.core.model.workflow import Action, Workflow, all_commands, encode
from mulligan.errors import WARNING, InputInvalid, Problem
from mulligan.formats import examine_with_files
from mulligan.language.python import python_files
from mulligan.ports.bundles import Bundle, digest_of, encode_bundle
from mulligan.service.authoring.named_files import read_file
from mulligan.service.runs.changes.preflight import declared_files
from mulligan.service.server.publishing.imports import imported_files, imported_names, module_files
from mulligan.service.server.publishing.project_files import ProjectFile, ProjectFiles, find_root

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Publishable(msgspec.Struct, frozen=True):
    """A workflow of a project, with the files that it needs."""

    workflow: Workflow
    # The text of its file, and its name below the root: `flows/sales.py:nightly`.
    text: str
    entry: str
    files: tuple[ProjectFile, ...]
    warnings: tuple[Problem, ...] = ()
    # The system whose file it was said to be.
    format: str | None = None

    @property
    def file(self) -> str:
        """The name of its file."""
        return self.entry.rpartition("/")[2].partition(":")[0]

    @property
    def is_text_alone(self) -> bool:
        """Whether the text is all of it: a server then reads it itself, and people edit it there."""
        return len(self.files) == 1 and not self.file.endswith(python_files.SUFFIX)


class SentBundle(msgspec.Struct, frozen=True):
    """A bundle to be published: its digest, and each content that it needs, by its hash."""

    digest: str
    bundle: Bundle
    contents: dict[str, bytes]


def read_publishable(
    file: Path, *, include: Sequence[str] = (), format: str | None = None, root: Path | None = None
) -> Publishable:
    """The workflow of a file with what it needs. `LanguageError` or `InputInvalid` where something is refused.

    `root`: the folder of its project, if that is known.
    """
    python = python_files.as_python_file(file)
    path = file if python is None else python.path
    text = read_file(path)
    root = find_root(path) if root is None else root.resolve()
    files = ProjectFiles(root)
    # Its name is said first, and why: what is wrong with others is about them.
    relative = Path(files.add(path.resolve(), "the workflow file"))
    named = f"{relative}:{python.name}" if python is not None and python.name else str(relative)
    with chdir(root):
        read = examine_with_files(Path(named), named=format)
    workflow = read.result.workflow
    for name in read.files:
        files.add(name, "a workflow that it calls")
    _add_modules(files, workflow, root, relative, [root / one for one in read.modules])
    missing = list(_add_data(files, workflow))
    for pattern in include:
        files.add_matching(pattern, "include")
    found = files.read()
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError:
        raise InputInvalid(f"'{path}' is not UTF-8", hint="a published workflow is a text") from None
    return Publishable(workflow, decoded, named, tuple(found), (*read.result.warnings, *missing), format)


def make_bundle(publishable: Publishable, labels: Mapping[str, str] = _NO_LABELS) -> SentBundle:
    """The bundle of a workflow: content-addressed, so the same files and labels are the same bundle."""
    definition = encode(publishable.workflow)
    bundle = Bundle(
        digest_of(definition), tuple(one.file for one in publishable.files), publishable.entry, dict(labels)
    )
    manifest = encode_bundle(bundle)
    contents = {one.file.digest: one.content for one in publishable.files}
    digest = digest_of(manifest)
    return SentBundle(digest, bundle, {**contents, bundle.definition: definition, digest: manifest})


def _add_modules(files: ProjectFiles, workflow: Workflow, root: Path, entry: Path, loaded: Sequence[Path]) -> None:
    """Add the modules of the project that its steps call, and what those import."""
    folders, starts = [root], dict.fromkeys(loaded, "a module of the project")
    if entry.suffix == python_files.SUFFIX:
        folders.append((root / entry).parent)
        starts[root / entry] = "the workflow file"
    for action in _python_actions(_without_published(workflow)):
        params = action.params
        for key in ("import_from", "file"):
            if os.path.isabs(params.get(key, "")):
                raise InputInvalid(
                    f"step code of '{params.get('call', '')}' is in '{params[key]}', which is outside the project",
                    hint=f"the project is in {root}; install the module, or move it there",
                )
        folder = root / params.get("import_from", os.path.dirname(params.get("file", "")))
        if folder not in folders:
            folders.append(folder)
        module = str(params.get("call", "")).partition(":")[0]
        names = [module] if module else list(imported_names(str(params.get("code", ""))))
        for name in names:
            for one in module_files(root, [folder, root], name):
                starts.setdefault(one, f"called as {name}" if module else "imported by a step")
        for name in imported_names(str(params.get("source", ""))):
            for one in module_files(root, [folder, root], name):
                starts.setdefault(one, f"imported by {module}")
    for path, why in imported_files(root, starts, folders).items():
        files.add(path, why)


def _add_data(files: ProjectFiles, workflow: Workflow) -> Iterator[Problem]:
    """Add the files that steps declare to read and that no step writes. What is not there is warned of."""
    for path in dict.fromkeys(declared_files(_without_published(workflow))):
        if os.path.isabs(path):
            continue
        if (files.root / path).exists():
            files.add(path, "a step reads it")
        else:
            yield Problem(
                f"{WARNING}file",
                f"file '{path}', which a step reads, is not in the project",
                hint="its worker has to have it",
            )


def _without_published(workflow: Workflow) -> Workflow:
    """The workflow without what it calls of the catalogue, which has files of its own."""
    own = {name: _without_published(child) for name, child in workflow.children.items() if not child.source}
    return replace(workflow, children=own)


def _python_actions(workflow: Workflow) -> Iterator[Action]:
    for command in all_commands((*workflow.steps, workflow.end)):
        if command.action is not None and traits_of(command.action).runs_python:
            yield command.action
    for child in workflow.children.values():
        yield from _python_actions(child)


def with_settings(publishable: Publishable, **settings: object) -> Publishable:
    """The same with other values of its workflow, such as its schedules."""
    return replace(publishable, workflow=replace(publishable.workflow, **settings))
