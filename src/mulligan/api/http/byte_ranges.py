"""The header `Range` (RFC 9110): which part of a text is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from mulligan.errors import MulliganError

_ONE = re.compile(r"\s*bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*")


class RangeUnsatisfiable(MulliganError):
    """The range begins behind the end."""

    code = "request.range"
    http_status = 416
    exit_code = 2


class AskedRange(NamedTuple):
    """What is sent of a text: from `start` up to and without `end`, with the status and the headers that say so."""

    start: int
    end: int
    status: int
    headers: dict[str, str]


def asked_range(headers: Mapping[str, str], size: int) -> AskedRange:
    """What the headers of a request ask for, of a text of this size."""
    part = _read_range(headers.get("range", ""), size) if size else None
    start, end = part or (0, size)
    content = {"Content-Range": f"bytes {start}-{end - 1}/{size}"} if part else {}
    about = {"Accept-Ranges": "bytes", "Content-Length": str(end - start), **content}
    return AskedRange(start, end, 206 if part else 200, about)


def _read_range(header: str, size: int) -> tuple[int, int] | None:
    """The part that is asked for; None for all of it, also if the header asks for something else than one range.

    `RangeUnsatisfiable` if it begins behind the end.
    """
    match = _ONE.fullmatch(header)
    if match is None or match[1] == match[2] == "":
        return None
    first, last = match[1], match[2]
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(0, size - int(last))
    if start >= size:
        raise RangeUnsatisfiable(
            f"the range begins at {start}, and there are {size} bytes", hint="begin before the end", size=size
        )
    end = size if not first or not last else min(int(last) + 1, size)
    return start, end
