"""One input out of another: changes that a tired person, a broken disk or an enemy might make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

CHANGES_MAX = 6
SLICE_BYTES_MAX = 24
# Signs that mean something in most of what we read.
_SIGNS = [bytes([sign]) for sign in b"\t\n :{}[]()'\"#&*!|>%@`,-?\\$;=<~^./0"]
# What no decent text has in it: marks, halves, NULs, numbers beyond measure, depth, width.
HOSTILE = [
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\xed\xa0\x80", b"\\ud800", b"\xf4\x90\x80\x80", b"\x85", b"\x1b[31m"),
    *("\u2028\u202e\u200b\ufffe\ufeff".encode(), "ﬀẞİı٣Ⅷ".encode(), b"\r", b"\x7f", b"\\x00", b"\\u0000"),
    *(
        b"1e400",
        b"-0",
        b"9" * 25,
        b"9" * 5000,
        b"-9223372036854775809",
        b"18446744073709551616",
        b"0x",
        b".inf",
        b"nan",
    ),
    *(b"[" * 90, b"{" * 90, b"(" * 300, b"[" * 2000, b"${" * 100, b"- " * 100, b"a: " * 50, b"x" * 100_000),
    *(
        b"&a [*a]",
        b"*a",
        b"<<: *a",
        b"!!python/object/apply:os.system [touch x]",
        b"!!binary aGk=",
        b"? [a]",
        b"%YAML 9.9",
    ),
    *(b"../../../etc/passwd", b"/dev/zero", b"$(touch x)", b"`touch x`", b"{{ ().__class__ }}", b"__proto__", b"%s%n"),
]

Change = Callable[[bytes, Random, Sequence[bytes], Sequence[bytes]], bytes]


def mutated(seeds: Sequence[bytes], words: Sequence[bytes], chance: Random) -> bytes:
    """A seed after a few changes. The same chance gives the same bytes."""
    data = chance.choice(seeds)
    for _ in range(chance.randint(0, CHANGES_MAX)):
        data = chance.choice(_CHANGES)(data, chance, seeds, words)
    return data


def _slice(data: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.randint(1, SLICE_BYTES_MAX))


def _lose(data: bytes, chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    start, end = _slice(data, chance)
    return data[:start] + data[end:]


def _double(data: bytes, chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    start, end = _slice(data, chance)
    return data[:end] + data[start:end] * chance.choice((1, 1, 1, 40)) + data[end:]


def _flip(data: bytes, chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def _say(data: bytes, chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A word of the language, in the place of something or between."""
    start, end = _slice(data, chance)
    word = chance.choice(words) if words else b"x"
    return data[:start] + word + data[chance.choice((start, end)) :]


def _sign(data: bytes, chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    start, _ = _slice(data, chance)
    return data[:start] + chance.choice(_SIGNS) + data[start:]


def _spoil(data: bytes, chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    start, end = _slice(data, chance)
    return data[:start] + chance.choice(HOSTILE) + data[chance.choice((start, end)) :]


def _splice(data: bytes, chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """The beginning of this and the end of another."""
    other = chance.choice(seeds)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _move_line(data: bytes, chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    line = lines.pop(chance.randrange(len(lines)))
    lines.insert(chance.randrange(len(lines) + 1), chance.choice((line, b"  " + line, line.lstrip())))
    return b"\n".join(lines)


_CHANGES: list[Change] = [_lose, _double, _flip, _say, _say, _sign, _spoil, _splice, _move_line]
