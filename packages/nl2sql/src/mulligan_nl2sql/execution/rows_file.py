"""The rows of a result: JSON lines, one object for each row, cut at a limit of rows or bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mulligan_nl2sql.execution.json_values import as_json
from mulligan_nl2sql.execution.messages import WrittenRows

_BUFFER_BYTES = 1 << 16


def write_rows(
    file: int, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, rows_max: int, bytes_max: int
) -> WrittenRows:
    """Write rows until a limit is reached. Only whole rows are written."""
    encoder = msgspec.json.Encoder()
    buffer = bytearray()
    count = size = 0
    cut = ""
    for row in rows:
        if count == rows_max:
            cut = "rows"
            break
        line = encoder.encode({name: as_json(value) for name, value in zip(columns, row, strict=True)}) + b"\n"
        if size + len(line) > bytes_max:
            cut = "bytes"
            break
        buffer += line
        count, size = count + 1, size + len(line)
        if len(buffer) >= _BUFFER_BYTES:
            _write(file, buffer)
    _write(file, buffer)
    return WrittenRows(count, size, cut)


def _write(file: int, buffer: bytearray) -> None:
    while buffer:
        del buffer[: os.write(file, buffer)]
