"""A large output is stored once for each turn: in the entry of the attempt that brought it, which owns it.

The entry that completes the step and the row of its place hold the same output. They are written without it and name
the owner; whoever reads them from the store gets them whole. What a later turn writes has its own copy again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from mulligan.core.effects.snapshot import Row
from mulligan.core.model.codec import decode, encode_all, encode_without_output
from mulligan.core.model.events import AttemptSucceeded
from mulligan.errors import CodecError
from mulligan.ports import Commit
from mulligan.store.sql.sql_arrays import Bigints
from mulligan.store.sql.sql_database import SqlDatabase

# Outputs with fewer bytes are written as they are: looking for an entry costs more than they do.
LARGE = 1024

# A row that begins with this byte, which no MessagePack begins with, lacks an output: then follow the number of its
# owner, where it belongs, and the rest of the row.
_MARK = b"\xc1"
_SEQ, _AT = slice(1, 9), slice(9, 17)
_HEAD_BYTES = _AT.stop

_json = msgspec.json.Encoder().encode
_packed = msgspec.msgpack.Encoder().encode

# A row of the tables as a statement selects it: the run first, the data last.
_Selected = TypeVar("_Selected", bound=Sequence[Any])


class _Owned(msgspec.Struct, frozen=True):
    """An output, as rows have it, and the number of the entry that owns it."""

    packed: bytes
    seq: int


def lines_and_rows(commit: Commit) -> tuple[list[bytes], Sequence[Row]]:
    """What a turn writes into the log and the tables: each large output once."""
    lines = encode_all(commit.entries)
    for line in lines:
        if len(line) >= LARGE:
            return _shared(commit, lines)
    return lines, commit.rows


def _shared(commit: Commit, lines: list[bytes]) -> tuple[list[bytes], Sequence[Row]]:
    owners: dict[bytes, int] = {}
    by_place: dict[str, _Owned] = {}
    for position, entry in enumerate(commit.entries):
        fact: Any = entry.fact
        output = getattr(fact, "output", None)
        if len(lines[position]) < LARGE or output is None or len(text := _json(output)) < LARGE:
            continue
        if type(fact) is AttemptSucceeded:
            owners[text] = entry.seq
            # The first command of an item, or the item itself.
            by_place[fact.place] = by_place[fact.place.rpartition(".")[0]] = _Owned(_packed(output), entry.seq)
        elif text in owners:
            lines[position] = encode_without_output(entry, owners[text])
    return lines, [_without(row, by_place) for row in commit.rows] if owners else commit.rows


def _without(row: Row, owned: dict[str, _Owned]) -> Row:
    kind, key, tag, data = row
    if data is None or kind != "places" or len(data) < LARGE or (one := owned.get(key)) is None:
        return row
    at = data.find(one.packed)
    if at < 0:
        return row
    return kind, key, tag, _MARK + one.seq.to_bytes(8) + at.to_bytes(8) + data[:at] + data[at + len(one.packed) :]


def entry_id(run_id: int, seq: int) -> int:
    """One number for an entry of any log."""
    return (run_id << 32) + seq


def whole_rows(rows: Sequence[_Selected], database: SqlDatabase) -> Sequence[_Selected]:
    """The rows with their outputs.

    A row whose owner is missing stays as it is: it cannot be read, like any damaged row.
    """
    lacking = {position: found for position, row in enumerate(rows) if (found := _owner(row)) is not None}
    if not lacking:
        return rows
    packed: dict[int, bytes] = {}
    for number, line in database.query("entries", Bigints(sorted(set(lacking.values())))):
        try:
            fact: Any = decode(line).fact
            packed[number] = _packed(fact.output)
        except (CodecError, AttributeError):
            continue
    return [
        _filled(row, packed[lacking[position]]) if lacking.get(position) in packed else row
        for position, row in enumerate(rows)
    ]


def _owner(row: Sequence[Any]) -> int | None:
    data = row[-1]
    if not isinstance(data, bytes) or data[:1] != _MARK or len(data) < _HEAD_BYTES:
        return None
    seq = int.from_bytes(data[_SEQ])
    return entry_id(row[0], seq) if isinstance(row[0], int) and seq < 1 << 32 else None


def _filled(row: Any, packed: bytes) -> Any:
    *others, data = row
    at, rest = int.from_bytes(data[_AT]), data[_HEAD_BYTES:]
    return (*others, rest[:at] + packed + rest[at:])
