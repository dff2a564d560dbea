"""Entries as bytes and back: one JSON object per line, versioned; old versions are upcast to the current one.

    {"v":1,"seq":8,"at":"2026-11-15T03:12:00Z","caused_by":7,"fact":{"type":"step.completed","step":"build",…}}

A store may write an entry without its output, if that is the output of an earlier entry of the same log: it is in the
log once. Such a line names that entry (`{"v":1,"output_of":7,"seq":8,…`) and cannot be read without it.

A log outlives the code that wrote it. When the shape of a fact changes, VERSION goes up by one and `UPCASTS` gets a
function that turns the old shape into the new one. Logs of every release are kept in tests/golden and must still fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.model.events import Entry
from mulligan.errors import CodecError

VERSION = 1

# From version n to n + 1: the whole entry as plain data in, the whole entry out.
Upcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: dict[int, Upcast] = {}

_HEAD = b'{"v":%d,' % VERSION
_SHARING = b'%s"output_of":' % _HEAD
_encoder = msgspec.json.Encoder()


@cache
def _decoder() -> msgspec.json.Decoder[Entry]:
    """Created when a log is first read, since it takes longer than a short run that only writes."""
    return msgspec.json.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    """The entry as one line of JSON, without the newline."""
    return _HEAD + _encoder.encode(entry)[1:]


def encode_all(entries: Iterable[Entry]) -> list[bytes]:
    """The lines of many entries, like `encode`: every turn has several."""
    head, write = _HEAD, _encoder.encode
    return [head + write(entry)[1:] for entry in entries]


def encode_without_output(entry: Entry, owner: int) -> bytes:
    """The line of an entry whose output is that of entry `owner`."""
    fact: Any = entry.fact
    plain = replace(entry, fact=replace(fact, output=None))
    return b"%s%d,%s" % (_SHARING, owner, _encoder.encode(plain)[1:])


def decode(data: bytes, upcasts: Mapping[int, Upcast] = UPCASTS, version: int = VERSION) -> Entry:
    """The entry that `data` holds, whichever version wrote it."""
    if not isinstance(data, bytes):
        raise CodecError(f"an event cannot be read: it is {type(data).__name__}, not bytes")
    if data.startswith(_SHARING):
        raise CodecError("an event cannot be read: its output is in another event", hint=_excerpt(data))
    return _decode(data, upcasts, version)


def _decode(data: bytes, upcasts: Mapping[int, Upcast], version: int) -> Entry:
    try:
        if upcasts or not data.startswith(_HEAD):
            return _decode_old(data, upcasts, version)
        return _decoder().decode(data)
    except RecursionError as error:
        raise CodecError("an event cannot be read: it is nested too deeply", hint=_excerpt(data)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CodecError(f"an event cannot be read: {error}", hint=_excerpt(data)) from error


def decode_all(lines: Sequence[bytes], entry_at: Callable[[int], Entry] | None = None) -> list[Entry]:
    """The entries of many lines of one log, like `decode`: a log may have a million of them.

    `entry_at` gives an entry that is not among them, if the output of one of them is there.
    """
    if not UPCASTS:
        read, head, sharing = _decoder().decode, _HEAD, _SHARING
        try:
            if not any(data.startswith(sharing) for data in lines):
                return [read(data) if data.startswith(head) else decode(data) for data in lines]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, AttributeError):
            # One cannot be read: `decode` says which and why.
            pass
    entries: list[Entry] = []
    found: dict[int, Entry] = {}
    for data in lines:
        entry = _decode_sharing(data, found, entry_at) if _is_sharing(data) else decode(data)
        found[entry.seq] = entry
        entries.append(entry)
    return entries


def _is_sharing(data: bytes) -> bool:
    return isinstance(data, bytes) and data.startswith(_SHARING)


class _Head(msgspec.Struct):
    output_of: int


def _decode_sharing(data: bytes, found: Mapping[int, Entry], entry_at: Callable[[int], Entry] | None) -> Entry:
    entry = _decode(data, UPCASTS, VERSION)
    fact: Any = entry.fact
    try:
        owner = msgspec.json.decode(data, type=_Head).output_of
        whole = found.get(owner) or (entry_at(owner) if entry_at is not None else None)
        if whole is None:
            return decode(data)
        given: Any = whole.fact
        return replace(entry, fact=replace(fact, output=given.output))
    except (msgspec.DecodeError, TypeError, AttributeError) as error:
        raise CodecError(f"an event cannot be read: {error}", hint=_excerpt(data)) from error


def _decode_old(data: bytes, upcasts: Mapping[int, Upcast], version: int) -> Entry:
    plain = msgspec.json.decode(data)
    if not isinstance(plain, dict) or not isinstance(plain.get("v"), int):
        raise CodecError("an event cannot be read: it has no version", hint=_excerpt(data))
    found = plain["v"]
    if found > version:
        raise CodecError(
            f"an event was written by a newer Mulligan (version {found}, this one reads up to {version})",
            hint="use the Mulligan that wrote it, or a newer one",
        )
    for old in range(found, version):
        if old not in upcasts:
            raise CodecError(f"an event of version {old} cannot be upcast to {version}", hint=_excerpt(data))
        plain = upcasts[old](plain)
    return msgspec.convert(plain, Entry)


def _excerpt(data: bytes) -> str:
    return data[:200].decode("utf-8", "replace")


def encode_log(entries: Iterable[Entry]) -> bytes:
    """A whole log as JSON lines."""
    return b"".join(encode(entry) + b"\n" for entry in entries)


def decode_log(data: bytes) -> Iterator[Entry]:
    """The entries of a log written by `encode_log`. A truncated last line is an error."""
    return (decode(line) for line in data.split(b"\n") if line.strip())
