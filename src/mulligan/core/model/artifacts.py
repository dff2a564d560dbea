"""Large outputs: a run's facts hold a reference, and what it refers to is kept beside the log.

    {"$artifact": {"name": "17/build/1/2/output.json", "size": 81920, "sha256": "9f2c…", "format": "json"}}

A mapping with that one key is a reference wherever it stands in a fact, and nothing else is: an output of a user's
that holds such a mapping is kept as an artifact itself, and what is in an artifact is never interpreted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from mulligan.errors import ArtifactDamaged

Format = Literal["json", "text"]

# What is larger as JSON is no part of an event.
INLINE_BYTES_MAX = 64 * 1024
KEY = "$artifact"
# Where the key stands in no JSON, there is no reference in it.
KEY_AS_JSON = b'"$artifact"'
ENDINGS: dict[Format, str] = {"json": ".json", "text": ".txt"}
# No store has numbered more runs.
_RUN_DIGITS_MAX = 19
# Folders and a file, as `keys.file_name` writes them. None begins with a dot: no name leads elsewhere.
# A text, compiled when somebody first asks: most runs never do.
_NAME = r"[\w%@\[\]-][\w%.@\[\]-]*(?:/[\w%@\[\]-][\w%.@\[\]-]*)+"


class Artifact(msgspec.Struct, frozen=True):
    """What is kept under a name, and how to know that it is still that."""

    name: str
    size: int
    sha256: str
    format: Format = "json"


def described(name: str, data: bytes, format: Format) -> Artifact:
    """The artifact that `data` is under a name."""
    return Artifact(name, len(data), hashlib.sha256(data).hexdigest(), format)


def run_of(name: str) -> int:
    """The run in whose folder a name is; 0 where it is in none."""
    first = name.partition("/")[0]
    return int(first) if first.isdecimal() and len(first) <= _RUN_DIGITS_MAX else 0


def is_name(name: str) -> bool:
    """Whether this can be the name of an artifact: folders and a file below the place where they are kept."""
    return re.fullmatch(_NAME, name, re.ASCII) is not None


# -- references ------------------------------------------------------------------------------------------------------


def is_artifact(value: Any) -> bool:
    """Whether a value of a fact is a reference."""
    return type(value) is dict and len(value) == 1 and KEY in value


def reference(artifact: Artifact) -> dict[str, Any]:
    """The artifact as it stands in a fact."""
    return {KEY: msgspec.structs.asdict(artifact)}


def referred(value: dict[str, Any]) -> Artifact:
    """What a reference refers to. One that somebody has written by hand, and wrongly, refers to nothing."""
    try:
        found = msgspec.convert(value[KEY], Artifact)
    except msgspec.ValidationError as error:
        raise ArtifactDamaged(f"'{KEY}' is no reference to an artifact: {_small(str(error))}") from None
    if not is_name(found.name):
        raise ArtifactDamaged(f"'{found.name}' is no name of an artifact", name=found.name)
    return found


def references(value: Any) -> Iterator[dict[str, Any]]:
    """Every reference in a value, in order."""
    if is_artifact(value):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def holds_reference(value: Any) -> bool:
    """Whether there is one in it: encoded first, since that takes a hundredth of the time of a walk."""
    if not isinstance(value, dict | list):
        return False
    return KEY_AS_JSON in msgspec.json.encode(value) and next(references(value), None) is not None


def replaced(value: Any, by: Callable[[dict[str, Any]], Any]) -> Any:
    """The value with each reference replaced by what `by` gives for it, which is not looked into."""
    if is_artifact(value):
        return by(value)
    if isinstance(value, dict):
        return {key: replaced(inner, by) for key, inner in value.items()}
    return [replaced(inner, by) for inner in value] if isinstance(value, list) else value


# -- contents --------------------------------------------------------------------------------------------------------


def checked(artifact: Artifact, data: bytes) -> bytes:
    """The bytes themselves if they are what was kept; ArtifactDamaged if not."""
    if len(data) != artifact.size:
        raise ArtifactDamaged(
            f"artifact '{artifact.name}' is damaged: it has {len(data)} bytes instead of {artifact.size}",
            name=artifact.name,
        )
    if hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise ArtifactDamaged(f"artifact '{artifact.name}' is damaged: its content has changed", name=artifact.name)
    return data


def content(artifact: Artifact, data: bytes) -> Any:
    """The value that was kept as these bytes."""
    return data.decode() if artifact.format == "text" else msgspec.json.decode(data)


def whole(value: Any, fetch: Callable[[Artifact], bytes]) -> Any:
    """The value with what is in artifacts in the place of their references."""

    def content_of(reference: dict[str, Any]) -> Any:
        artifact = referred(reference)
        return content(artifact, fetch(artifact))

    return replaced(value, content_of)


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]
