"""Types that threads decode, made ready before there are threads.

msgspec gathers what it has to know about a struct when the struct is decoded for the first time. If two threads do that
at once, one of them meets a half-made record, and the process ends with a segmentation fault (msgspec 0.22).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


def build_struct_types() -> None:
    """Let msgspec gather what it has to know about every struct that is loaded."""
    for struct in set(_below(msgspec.Struct)):
        try:
            msgspec.json.Decoder(struct)
        except (TypeError, NameError):
            pass  # one that cannot be decoded, and never is


def _below(kind: type) -> Iterator[type]:
    found: list[type] = kind.__subclasses__()
    for one in found:
        yield one
        yield from _below(one)
