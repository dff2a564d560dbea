"""A bundle: the files that a published workflow needs, each by the hash of its content, as one version.

A bundle is identified by the SHA-256 of its manifest. What is written here is checked wherever a manifest comes from:
whoever unpacks one writes the files that it names.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from mulligan.core.model.text.formatting import format_size
from mulligan.errors import InputInvalid

FILES_MAX, FILE_BYTES_MAX, BUNDLE_BYTES_MAX = 2_000, 16 << 20, 64 << 20
PATH_CHARS_MAX, PART_BYTES_MAX, DEPTH_MAX = 400, 200, 20
MANIFEST_BYTES_MAX = 2 << 20
# The digest of a version that is a bundle begins so; that of a text is the hash alone.
BUNDLE_DIGEST = "files:"
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Folders that no bundle has: the first is Git's, and hooks in it are run; the others are ours and Python's.
_RESERVED = frozenset((".git", ".mulligan", "__pycache__"))


class BundleFile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A file: its path below the root of its project, with `/`, and the size and the SHA-256 of its content."""

    path: str
    size: int
    digest: str
    executable: bool = False


class Bundle(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A manifest. `definition` is the hash of the checked workflow, as the publisher has read it from the files."""

    definition: str
    files: tuple[BundleFile, ...]
    # What was published: `sales.py:nightly`.
    entry: str = ""
    # Labels of its runs that the publisher has given.
    labels: Mapping[str, str] = {}

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    @property
    def digests(self) -> list[str]:
        """The contents that it needs, each once."""
        return [*dict.fromkeys((self.definition, *(one.digest for one in self.files)))]

    def shows(self, text: str) -> bool:
        """Whether this is the text of the file that was published: people read it in place of the files."""
        digest = digest_of(text.encode("utf-8", "surrogatepass"))
        of_entry = (one.digest for one in self.files if self.entry == one.path or self.entry.startswith(f"{one.path}:"))
        return digest == next(of_entry, digest_of(b""))


class ReadContent(Protocol):
    """The content with this hash that a run of this number may read. None if there is none."""

    def __call__(self, run_id: int, digest: str) -> bytes | None: ...


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def encode_bundle(bundle: Bundle) -> bytes:
    """The manifest as canonical JSON, of which the digest of the bundle is made. `InputInvalid` for a bad one."""
    ordered = msgspec.structs.replace(bundle, files=tuple(sorted(bundle.files, key=lambda one: one.path)))
    check_bundle(ordered)
    return msgspec.json.encode(ordered, order="sorted")


def decode_bundle(data: bytes, digest: str) -> Bundle:
    """The bundle of a manifest that somebody has sent or stored, checked. `InputInvalid`."""
    if digest_of(data) != digest:
        raise InputInvalid("the manifest of the bundle is not the one that was published", hint=_HINT)
    try:
        bundle = msgspec.json.decode(data, type=Bundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputInvalid(f"the manifest of the bundle cannot be read: {error}", hint=_HINT) from None
    check_bundle(bundle)
    return bundle


_HINT = "publish it again, with the version of Mulligan that the server has"


def check_bundle(bundle: Bundle) -> None:
    """Refuse a bundle that could not be unpacked everywhere, or would write outside of its folder."""
    if len(bundle.files) > FILES_MAX:
        raise InputInvalid(f"a version has at most {FILES_MAX:,} files, and this one {len(bundle.files):,}")
    for digest in (bundle.definition, *(one.digest for one in bundle.files)):
        check_digest(digest)
    if problem := next(_problems(bundle.files), ""):
        raise InputInvalid(problem, hint="publish fewer or smaller files" if "at most" in problem else "rename it")


def check_digest(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise InputInvalid("this is not a SHA-256", hint="write it as 64 hexadecimal digits")
    return digest


def _problems(files: Sequence[BundleFile]) -> Iterator[str]:
    for one in files:
        if problem := path_problem(one.path):
            yield f"'{one.path[:100]}' cannot be the path of a file of a version: {problem}"
        if not 0 <= one.size <= FILE_BYTES_MAX:
            yield f"'{one.path}' has {format_size(one.size)}, and a file has at most {format_size(FILE_BYTES_MAX)}"
    if (size := sum(one.size for one in files)) > BUNDLE_BYTES_MAX:
        yield f"the files have {format_size(size)}, and a version has at most {format_size(BUNDLE_BYTES_MAX)}"
    yield from _clashes(one.path for one in files)


def path_problem(path: str) -> str:
    """Why no file of a version can have this path; "" if one can."""
    parts = path.split("/")
    if not path or len(path) > PATH_CHARS_MAX or len(parts) > DEPTH_MAX:
        return f"it has 1 to {PATH_CHARS_MAX} characters, in at most {DEPTH_MAX} folders"
    if not path.isprintable() or "\\" in path:
        return "it has a character that not every system can have in a name"
    if any(part in ("", ".", "..") for part in parts):
        return "it is not below the root of the project"
    if any(part.casefold() in _RESERVED for part in parts):
        return "it is in a folder that is never published"
    try:
        is_long = any(len(part.encode()) > PART_BYTES_MAX for part in parts)
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return f"a name has at most {PART_BYTES_MAX} bytes" if is_long else ""


def _clashes(paths: Iterable[str]) -> Iterator[str]:
    """Files that are the same one where names that differ by case are the same, or that are a folder as well."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        if (folded := _folded(path)) in files:
            yield f"'{path}' and '{files[folded]}' are the same file on some systems"
        files[folded] = path
        for length in range(1, len(parts)):
            folder = "/".join(parts[:length])
            if (other := folders.setdefault(_folded(folder), folder)) != folder:
                yield f"'{folder}' and '{other}' are the same folder on some systems"
    for folded in files.keys() & folders.keys():
        yield f"'{files[folded]}' is a file and a folder"


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
