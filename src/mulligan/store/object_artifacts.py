"""Artifacts of a store of which some are objects: a reference to one says in which place it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mulligan.core.model.artifacts import Artifact, Format
from mulligan.errors import ArtifactDamaged, ObjectStoreFailed, StoreUnavailable
from mulligan.ports import ArtifactRecord, Artifacts

# The loop of a worker fetches what an expression or a program reads, and has heartbeats to send: a lease lasts 30 s.
FETCH_SECONDS_MAX = 10.0
# What may be over when it is asked again.
_TEMPORARY = frozenset({"CONNECTION", "TIMEOUT"})


class WithObjects:
    """`Artifacts`: what the store has itself, and objects for reading. Workers upload them: see `worker.outputs`."""

    def __init__(self, own: Artifacts) -> None:
        self._own = own

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        return self._own.keep(name, data, format)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        return self._own.keep_file(artifact, path)

    def fetch(self, artifact: Artifact) -> bytes:
        return fetch_object(artifact) if artifact.place else self._own.fetch(artifact)

    def path(self, artifact: Artifact) -> str:
        return "" if artifact.place else self._own.path(artifact)

    def records(self) -> Iterator[ArtifactRecord]:
        """Without objects, which only `gc` lists."""
        return self._own.records()

    def remove(self, names: Iterable[str]) -> None:
        self._own.remove(names)


def fetch_object(artifact: Artifact) -> bytes:
    """The content of an object. StoreUnavailable if it may be there when it is asked for again."""
    # Few runs have objects.
    from mulligan.object_store.bucket import bucket_of

    try:
        return bucket_of(artifact.place, FETCH_SECONDS_MAX).fetch(artifact)
    except ObjectStoreFailed as error:
        if error.failure_code in _TEMPORARY:
            raise StoreUnavailable(error.message, hint=error.hint) from error
        raise ArtifactDamaged(error.message, name=artifact.name) from error
