"""Artifacts as rows of the PostgreSQL database, visible to every host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mulligan.core.model.artifacts import Artifact, Format, describe_artifact, verify_content
from mulligan.errors import ArtifactGone
from mulligan.ports import ArtifactRecord
from mulligan.store.artifact_names import names_like
from mulligan.store.encoding import moment_from
from mulligan.store.postgres.postgres_client import PostgresClient
from mulligan.store.sql.sql_arrays import Texts


class ArtifactRows:
    """Each artifact is one row, written by one statement."""

    def __init__(self, client: PostgresClient) -> None:
        self._client = client

    def path(self, artifact: Artifact) -> str:
        return ""

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        kept = next(
            wanted for wanted in names_like(name) if self._client.query("keep_artifact", wanted, data, len(data))
        )
        return describe_artifact(kept, data, format)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        kept = self.keep(artifact.name, Path(path).read_bytes(), artifact.format)
        Path(path).unlink()
        return msgspec.structs.replace(artifact, name=kept.name)

    def fetch(self, artifact: Artifact) -> bytes:
        rows = self._client.query("artifact", artifact.name)
        if not rows:
            raise ArtifactGone(f"artifact '{artifact.name}' is gone", name=artifact.name)
        return verify_content(artifact, bytes(rows[0][0]))

    def records(self) -> Iterator[ArtifactRecord]:
        for name, size, kept_at in self._client.query("artifacts"):
            yield ArtifactRecord(name, size, moment_from(kept_at))

    def remove(self, names: Iterable[str]) -> None:
        self._client.query("remove_artifacts", Texts(names))
