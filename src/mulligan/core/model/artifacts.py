"""Artifacts: large outputs are stored beside the log, and the facts of a run hold references to them.

    {"$artifact": {"name": "17/build/1/2/output.json", "size": 81920, "sha256": "9f2c…", "format": "json"}}

A mapping with that one key is a reference wherever it occurs in a fact. If the output of a step contains such a
mapping, the output is stored as an artifact itself; the content of an artifact is never interpreted. Only a worker
writes references: to large outputs, and to the files that a step keeps (`format` is then neither json nor text). Such a
reference says what the file is:

    {"$artifact": {"name": …, "size": …, "sha256": …, "format": "parquet", "type": "pandas.DataFrame", "rows": 1000,
                   "columns": 5, "preview": {"columns": [["day", "date32"], …], "rows": [["2026-01-01", …], …]}}}

`place` says where the content is, if it is an object of a bucket and not in the store; the name is its key there, and
has its hash in it: 17/build/1/2/HASH/output.json.

An output that is larger than any may be is not stored. A reference with the format `dropped` stands for it wherever the
output would be, so that nobody takes it for an empty one: an expression that leads to it fails with OUTPUT_TOO_LARGE.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

import msgspec

from mulligan.core.model.text.table_preview import TablePreview
from mulligan.errors import ArtifactDamaged

Format = Literal["json", "text", "file", "parquet", "arrow", "npy", "dropped"]

# Values that are larger as JSON are not stored in an event.
INLINE_BYTES_MAX = 64 * 1024
# Larger outputs are not kept at all.
OUTPUT_BYTES_MAX = 64 * 1024 * 1024
KEY = "$artifact"
# JSON without this key has no reference in it.
KEY_AS_JSON = b'"$artifact"'
# The formats whose content is a value. Others are files, which only a step reads: an expression has their reference.
VALUE_FORMATS = frozenset({"json", "text"})
# The format of a reference to an output that was not kept.
DROPPED: Format = "dropped"
_DROPPED_AS_JSON = b'"format":"dropped"'
ENDINGS: dict[Format, str] = {"json": ".json", "text": ".txt"}
# More digits than any run id has.
_RUN_DIGITS_MAX = 19
# Folders and a file, as `place_keys.file_name` writes them. No part begins with a dot, so no name leads elsewhere.
# A string, compiled at its first use, since most runs have no artifacts.
_NAME = r"[\w%@\[\]-][\w%.@\[\]-]*(?:/[\w%@\[\]-][\w%.@\[\]-]*)+"

# A bucket, and folders in it. Without a user, a password or a query: credentials come from the environment.
_OBJECT_PLACE = r"(?:s3|gs|az)://[a-z0-9][a-z0-9._-]{1,62}(?:/[\w=+-][\w.=+-]*){0,20}"
# The folder of an attempt: its run, its step, its visit and its number.
_FOLDER_PARTS = 4
PLACE_CHARS_MAX = 500


class Artifact(msgspec.Struct, frozen=True):
    """What is stored under a name, with size and hash to verify it."""

    name: str
    size: int
    sha256: str
    format: Format = "json"
    # What the file was in the step that returned it: `pandas.DataFrame`; "" for a file that the step wrote itself.
    type: str = ""
    # Of a table; and the shape of an array.
    rows: int | None = None
    columns: int | None = None
    shape: tuple[int, ...] | None = None
    # Where it is, if not in the store: s3://BUCKET/PREFIX/STORE.
    place: str = ""
    # The columns of a table and its first rows; None for one of an older version, or among many tables.
    preview: TablePreview | None = None

    @property
    def is_file(self) -> bool:
        """Whether it is a file for programs, not a value for expressions."""
        return self.format not in VALUE_FORMATS and not self.is_dropped

    @property
    def is_dropped(self) -> bool:
        """Whether it stands for an output that was too large to be kept."""
        return self.format == DROPPED

    @property
    def description(self) -> dict[str, Any]:
        """What a reference to it says."""
        found = {"name": self.name, "size": self.size, "sha256": self.sha256, "format": self.format}
        if self.is_file:
            shape = None if self.shape is None else list(self.shape)
            preview = None if self.preview is None else msgspec.json.decode(msgspec.json.encode(self.preview))
            extra = {"type": self.type or None, "rows": self.rows, "columns": self.columns, "shape": shape}
            extra["preview"] = preview
            found |= {name: value for name, value in extra.items() if value is not None}
        return found | {"place": self.place} if self.place else found


def describe_artifact(name: str, data: bytes, format: Format) -> Artifact:
    """The artifact for `data` under this name."""
    return Artifact(name, len(data), hashlib.sha256(data).hexdigest(), format)


def run_id_of(name: str) -> int:
    """The run whose folder the name is in; 0 if it is in none."""
    first = name.partition("/")[0]
    return int(first) if first.isdecimal() and len(first) <= _RUN_DIGITS_MAX else 0


def is_artifact_name(name: str) -> bool:
    """Whether this is a valid name of an artifact: folders and a file."""
    return re.fullmatch(_NAME, name, re.ASCII) is not None


def is_object_place(text: str) -> bool:
    """Whether this may be a place of objects."""
    return len(text) <= PLACE_CHARS_MAX and re.fullmatch(_OBJECT_PLACE, text, re.ASCII) is not None


def attempt_folder_of(name: str) -> str:
    """The folder of the attempt whose artifact has this name."""
    return "/".join(name.split("/")[:_FOLDER_PARTS])


def object_name(artifact: Artifact) -> str:
    """Its name as an object: with its hash, so that it never stands for another content."""
    folder, _, file = artifact.name.rpartition("/")
    return f"{folder}/{artifact.sha256}/{file}"


# -- references ------------------------------------------------------------------------------------------------------


def is_artifact(value: Any) -> bool:
    """Whether a value of a fact is a reference."""
    return type(value) is dict and len(value) == 1 and KEY in value


def make_reference(artifact: Artifact) -> dict[str, Any]:
    """The reference to an artifact, as a fact holds it."""
    return {KEY: artifact.description}


def parse_reference(value: dict[str, Any]) -> Artifact:
    """The artifact that a reference names. Raises ArtifactDamaged if the reference is not valid."""
    try:
        found = msgspec.convert(value.get(KEY), Artifact)
    except msgspec.ValidationError as error:
        problem = str(error)[:1].lower() + str(error)[1:]
        raise ArtifactDamaged(f"'{KEY}' is not a reference to an artifact: {problem}") from None
    if not is_artifact_name(found.name):
        raise ArtifactDamaged(f"'{found.name}' is not a name of an artifact", name=found.name)
    if found.place and not is_object_place(found.place):
        raise ArtifactDamaged(f"artifact '{found.name}' is said to be at a place that is none", name=found.name)
    if found.size < 0:
        raise ArtifactDamaged(f"artifact '{found.name}' cannot have {found.size} bytes", name=found.name)
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


def referenced_names(value: Any) -> set[str]:
    """The names of the artifacts that a report or another value refers to. Encoded first, as `holds_reference` does."""
    return _said_by_references(value, "name")


def referenced_places(value: Any) -> set[str]:
    """The places of the objects that a report or another value refers to."""
    return _said_by_references(value, "place")


def _said_by_references(value: Any, key: str) -> set[str]:
    data = msgspec.json.encode(value)
    if KEY_AS_JSON not in data:
        return set()
    described = (one[KEY] for one in references(msgspec.json.decode(data)))
    return {one[key] for one in described if isinstance(one, dict) and isinstance(one.get(key), str)}


def holds_reference(value: Any) -> bool:
    """Whether a value contains a reference. It is encoded first, which takes a hundredth of the time of a walk."""
    if not isinstance(value, dict | list):
        return False
    return KEY_AS_JSON in msgspec.json.encode(value) and next(references(value), None) is not None


def replace_references(value: Any, by: Callable[[dict[str, Any]], Any]) -> Any:
    """The value with each reference replaced by `by(reference)`. Replacements are not searched for references."""
    if is_artifact(value):
        return by(value)
    if isinstance(value, dict):
        return {key: replace_references(inner, by) for key, inner in value.items()}
    return [replace_references(inner, by) for inner in value] if isinstance(value, list) else value


# -- outputs that were not kept --------------------------------------------------------------------------------------


def dropped_reference(name: str, size: int) -> dict[str, Any]:
    """The reference that stands for an output of `size` bytes that was not kept; of 0 if its size is not known."""
    return make_reference(Artifact(name, size, "", DROPPED))


def find_dropped(value: Any) -> Artifact | None:
    """The first output in a value of a fact that was not kept; None if there is none, as nearly always."""
    if not isinstance(value, dict | list) or _DROPPED_AS_JSON not in msgspec.json.encode(value):
        return None
    for reference in references(value):
        # A step may have written something like it into the details of an error.
        with suppress(ArtifactDamaged):
            if (found := parse_reference(reference)).is_dropped:
                return found
    return None


def describe_dropped(dropped: Artifact) -> str:
    """`the output of 'build' was not kept: it has 67,108,865 bytes; the limit is 67,108,864`."""
    return f"the output of '{dropped.name.split('/')[1]}' was not kept: it {describe_excess(dropped.size)}"


def describe_excess(size: int) -> str:
    """`has 67,108,865 bytes; the limit is 67,108,864`, of an output that is too large."""
    return f"has {f'{size:,} bytes' if size else 'too many bytes'}; the limit is {OUTPUT_BYTES_MAX:,}"


# -- contents --------------------------------------------------------------------------------------------------------


def verify_content(artifact: Artifact, data: bytes) -> bytes:
    """The bytes if they match size and hash of the artifact. Raises ArtifactDamaged otherwise."""
    if len(data) != artifact.size:
        raise damaged_size(artifact, len(data))
    if hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise damaged_hash(artifact)
    return data


def damaged_size(artifact: Artifact, size: int) -> ArtifactDamaged:
    """The error for content of another size."""
    what = f"{_shown(artifact)} is damaged: it has {size} bytes instead of {artifact.size}"
    return ArtifactDamaged(what, name=artifact.name)


def damaged_hash(artifact: Artifact) -> ArtifactDamaged:
    """The error for other content of the same size."""
    return ArtifactDamaged(f"{_shown(artifact)} is damaged: its hash does not match", name=artifact.name)


def _shown(artifact: Artifact) -> str:
    return f"artifact '{artifact.name}'" + (f" in '{artifact.place}'" if artifact.place else "")


def decode_content(artifact: Artifact, data: bytes) -> Any:
    """The value from the bytes of an artifact. Raises ArtifactDamaged for a file."""
    if artifact.format not in VALUE_FORMATS:
        raise ArtifactDamaged(
            f"artifact '{artifact.name}' is a file, which only a step can read: pass it to one", name=artifact.name
        )
    return data.decode() if artifact.format == "text" else msgspec.json.decode(data)


def fetch_references(
    value: Any, fetch: Callable[[Artifact], bytes], locate: Callable[[Artifact], Any] | None = None
) -> Any:
    """The value with each reference replaced by the content of its artifact; one to a file by `locate(artifact)`.

    Without `locate` a reference to a file stays. So does one to an output that was not kept.
    """

    def content_of(reference: dict[str, Any]) -> Any:
        artifact = parse_reference(reference)
        if artifact.is_dropped:
            return reference
        if artifact.is_file:
            return reference if locate is None else locate(artifact)
        return decode_content(artifact, fetch(artifact))

    return replace_references(value, content_of)
