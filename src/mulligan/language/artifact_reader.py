"""What is in the artifacts that an expression reads: fetched when a path leads into one, and only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mulligan.core.model.artifacts import KEY, Artifact, content, holds_reference, referred, replaced
from mulligan.errors import ArtifactDamaged, ArtifactGone
from mulligan.language.cel import CelFailed

# Several expressions of one turn read the same output: the last ones are kept, up to so many bytes.
CACHED_BYTES_MAX = 16 * 1024 * 1024


class Contents:
    """The values that references stand for. What is in an artifact is never taken for a reference itself."""

    def __init__(self, fetch: Callable[[Artifact], bytes]) -> None:
        self._fetch = fetch
        self._cached: dict[Artifact, Any] = {}

    def of(self, reference: dict[str, Any]) -> Any:
        """The value that a reference stands for; CelFailed where it cannot be had."""
        try:
            artifact = referred(reference)
            if artifact not in self._cached:
                self._remember(artifact, content(artifact, self._fetch(artifact)))
        except (ArtifactGone, ArtifactDamaged) as error:
            raise CelFailed(error.message) from error
        return self._cached[artifact]

    def _remember(self, artifact: Artifact, value: Any) -> None:
        """The newest, and of the others as many as there is room for."""
        room = CACHED_BYTES_MAX - artifact.size
        for old in reversed(list(self._cached)):
            room -= old.size
            if room < 0:
                del self._cached[old]
        self._cached[artifact] = value

    def whole(self, value: Any) -> Any:
        """The value with what each reference in it stands for."""
        return replaced(value, self.of) if holds_reference(value) else value


def plain_content(value: Any) -> Any:
    """A value out of an artifact, to stand in a fact by itself; CelFailed where it would be taken for a reference."""
    if holds_reference(value):
        raise CelFailed(f"it has the key '{KEY}' in it, which is reserved for artifacts")
    return value
