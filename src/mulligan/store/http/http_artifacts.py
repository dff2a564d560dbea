"""Artifacts of a server: fetched from it, and uploaded by workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mulligan.core.model.artifacts import Artifact, Format, describe_artifact, verify_content
from mulligan.errors import StoreRefused
from mulligan.ports import ArtifactRecord
from mulligan.store.http.http_calls import Ask
from mulligan.store.http.http_connection import Transport

_decode = msgspec.json.Decoder(str).decode


class HttpArtifacts:
    """`Artifacts` over HTTP. Sizes and hashes are computed here: a content that has changed on its way is noticed."""

    def __init__(self, transport: Transport, ask: Ask, *, is_worker: bool) -> None:
        self._transport = transport
        self._ask = ask
        self._fetch = "work.fetch" if is_worker else "artifacts.fetch"

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        return describe_artifact(self._upload(name, data, format), data, format)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        name = self._upload(artifact.name, Path(path).read_bytes(), artifact.format)
        Path(path).unlink()
        return msgspec.structs.replace(artifact, name=name)

    def _upload(self, name: str, data: bytes, format: Format) -> str:
        return _decode(self._transport.upload({"name": name, "format": format}, data))

    def fetch(self, artifact: Artifact) -> bytes:
        return verify_content(artifact, self._ask(self._fetch, artifact=artifact))

    def path(self, artifact: Artifact) -> str:
        return ""

    def records(self) -> Iterator[ArtifactRecord]:
        raise _only_there()

    def remove(self, names: Iterable[str]) -> None:
        raise _only_there()


def _only_there() -> StoreRefused:
    return StoreRefused(
        "artifacts of a server can only be listed and removed where they are",
        hint="run 'mulligan gc' on the host of the server",
    )
