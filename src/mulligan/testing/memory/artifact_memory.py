"""Artifacts in memory: for tests and simulations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from mulligan.core.model.artifacts import Artifact, Format, describe_artifact, verify_content
from mulligan.errors import ArtifactGone
from mulligan.ports import ArtifactRecord, Clock
from mulligan.store.artifact_names import names_like

# Content and time of storing, by name.
StoredArtifacts = dict[str, tuple[bytes, datetime]]


class ArtifactMemory:
    """Artifacts of all memory stores that share their tables."""

    def __init__(self, kept: StoredArtifacts, clock: Clock) -> None:
        self._kept = kept
        self._clock = clock

    def path(self, artifact: Artifact) -> str:
        return ""

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        kept = next(wanted for wanted in names_like(name) if wanted not in self._kept)
        self._kept[kept] = (data, self._clock.now())
        return describe_artifact(kept, data, format)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        kept = self.keep(artifact.name, Path(path).read_bytes(), artifact.format)
        Path(path).unlink()
        return msgspec.structs.replace(artifact, name=kept.name)

    def fetch(self, artifact: Artifact) -> bytes:
        if artifact.name not in self._kept:
            raise ArtifactGone(f"artifact '{artifact.name}' is gone", name=artifact.name)
        return verify_content(artifact, self._kept[artifact.name][0])

    def records(self) -> Iterator[ArtifactRecord]:
        for name, (data, kept_at) in list(self._kept.items()):
            yield ArtifactRecord(name, len(data), kept_at)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._kept.pop(name, None)
