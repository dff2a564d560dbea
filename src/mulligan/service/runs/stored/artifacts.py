"""Where large outputs are stored, and the files that steps kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from mulligan.core.model.artifacts import KEY, Artifact, holds_reference, parse_reference, replace_references
from mulligan.core.model.events import AttemptFailed, AttemptSucceeded, Entry
from mulligan.errors import ArtifactDamaged
from mulligan.ports import Artifacts


class KeptFile(msgspec.Struct):
    """A file that an attempt kept: its name, and what the store knows of it."""

    place: str
    attempt: int
    file: str
    size: int
    sha256: str
    format: str
    # Its name in the store; and its path, if the store uses files.
    name: str
    path: str = ""
    # The place of the bucket that it is in; "" if the store has it.
    bucket: str = ""

    @property
    def artifact(self) -> Artifact:
        return Artifact(self.name, self.size, self.sha256, place=self.bucket)


def kept_files(entry: Entry, artifacts: Artifacts | None = None) -> Iterator[KeptFile]:
    """The files that the attempt of an event kept; with their paths, if `artifacts` knows them."""
    fact = entry.fact
    if not isinstance(fact, AttemptSucceeded | AttemptFailed):
        return
    for reference in fact.artifacts:
        try:
            one = parse_reference(reference)
        except ArtifactDamaged:
            continue  # written by hand
        path = "" if artifacts is None else artifacts.path(one)
        name = unquote(one.name.rpartition("/")[2])
        yield KeptFile(fact.place, fact.attempt, name, one.size, one.sha256, one.format, one.name, path, one.place)


def add_file_paths(artifacts: Artifacts, kept: Iterable[KeptFile]) -> None:
    """Say where kept files are: "" if the store does not use files."""
    for one in kept:
        one.path = artifacts.path(one.artifact)


Shown = TypeVar("Shown")


def with_artifact_paths(artifacts: Artifacts, value: Shown) -> Shown:
    """The value with the path of the file added to each reference to an artifact that is a file."""

    def with_path(reference: dict[str, Any]) -> dict[str, Any]:
        try:
            found = parse_reference(reference)
            path = "" if found.is_dropped else artifacts.path(found)
        except ArtifactDamaged:
            path = ""
        return {KEY: {**reference[KEY], "path": path}} if path else reference

    return replace_references(value, with_path) if holds_reference(value) else value
