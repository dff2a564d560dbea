"""Artifacts that an expression reads. They are fetched only when a path leads into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mulligan.core.model.artifacts import (
    KEY,
    Artifact,
    decode_content,
    holds_reference,
    parse_reference,
    replace_references,
)
from mulligan.errors import ArtifactDamaged, ArtifactGone
from mulligan.language.cel.cel import CelFailed

# Several expressions of one turn read the same output: the latest values are cached, up to this size.
CACHED_BYTES_MAX = 16 * 1024 * 1024


class ArtifactReader:
    """Reads the values that references point to. A value inside an artifact is never treated as a reference."""

    def __init__(self, fetch: Callable[[Artifact], bytes]) -> None:
        self._fetch = fetch
        self._cached: dict[Artifact, Any] = {}

    def read(self, reference: dict[str, Any]) -> Any:
        """The value of the artifact; of a file its description. CelFailed if it is gone or damaged."""
        try:
            artifact = parse_reference(reference)
            if artifact.is_file:
                return artifact.description
            if artifact not in self._cached:
                self._cache(artifact, decode_content(artifact, self._fetch(artifact)))
        except (ArtifactGone, ArtifactDamaged) as error:
            raise CelFailed(error.message) from error
        return self._cached[artifact]

    def _cache(self, artifact: Artifact, value: Any) -> None:
        """Add a value and drop the oldest ones if the cache is full."""
        room = CACHED_BYTES_MAX - artifact.size
        for old in reversed(list(self._cached)):
            room -= old.size
            if room < 0:
                del self._cached[old]
        self._cached[artifact] = value

    def fill_in(self, value: Any) -> Any:
        """The value with each reference replaced by the value it points to."""
        return replace_references(value, self.read) if holds_reference(value) else value


def refuse_references_in(value: Any) -> Any:
    """The value itself; CelFailed if it contains what a fact would treat as a reference."""
    if holds_reference(value):
        raise CelFailed(f"it has the key '{KEY}' in it, which is reserved for artifacts")
    return value
