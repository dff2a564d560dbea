"""How a secret may be encoded: as it is, or as base64, percent encoding, JSON and others write it.

An encoding is a sequence of pieces, each with its possible spellings. For base64 there are three, because the bytes
before the secret shift it: they match the secret wherever it is in the encoded data.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Iterator
from itertools import groupby, product

from mulligan.core.model.text.lazy_regex import lazy_regex

# A line of a secret is a secret too if it has this many characters.
LINE_CHARS_MIN = 8
# A shorter password in a URL would occur in ordinary words.
PASSWORD_CHARS_MIN = 4
# Fields of a credential that are not secret. Without them many messages would make no sense.
_NO_SECRETS = frozenset(
    "type host hostname port user username login database dbname name schema sslmode driver region scheme".split()
)
_ADDRESS = lazy_regex(r"[A-Za-z][\w+.-]*://[^\s/@:]*:([^\s/@]+)@")
_PLAIN = lazy_regex(r"[A-Za-z0-9_.~-]+", re.ASCII)
_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BITS = 6
# Encoders wrap lines at 60 characters or more, counting what precedes the secret on the first line.
_WRAPPED_FROM = 48
_LINE_END = (b"", b"\n", b"\r\n", b"\\n", b"\\r\\n")
_JSON_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_HTML_NAMES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_SHELL_QUOTES = ("'\\''", "'\"'\"'", "\\'")
_BASE64_SPELLINGS = {"+": (b"+", b"-", b"%2B", b"%2b"), "/": (b"/", b"_", b"%2F", b"%2f", b"\\/")}


# Pieces in order, each with its possible spellings.
Encoding = tuple[tuple[bytes, ...], ...]


def encodings_of(value: str) -> set[Encoding]:
    """Return all encodings of a secret, and of the parts of it that may appear alone."""
    results = {encoding for part in _parts(value) for encoding in _encodings(part)}
    return results.union(((text.encode(),),) for text in _all_escaped(value.strip()))


def _parts(value: str) -> set[str]:
    """Return the value, stripped too; each of its lines; the password of a URL; the fields of an object."""
    lines = [line.strip() for line in value.strip().splitlines()]
    results = {value, value.strip(), *(line for line in lines if len(line) >= LINE_CHARS_MIN)}
    if (address := _ADDRESS.match(value.strip())) is not None:
        results |= {part for part in (address[1], _unquoted(address[1])) if len(part) >= PASSWORD_CHARS_MIN}
    if value.lstrip().startswith("{"):
        results |= {part for part in _fields(value) if len(part) >= PASSWORD_CHARS_MIN}
    return results


def _fields(value: str) -> Iterator[str]:
    """Yield the strings in a credential that is an object, without fields such as host and user."""
    try:
        pending = [json.loads(value)]
    except (ValueError, RecursionError):
        return
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, dict):
            pending += [field for key, field in item.items() if key.lower().removeprefix("db_") not in _NO_SECRETS]


def _unquoted(text: str) -> str:
    """Decode percent escapes."""
    data = re.sub(rb"%([0-9A-Fa-f]{2})", lambda results: bytes.fromhex(results[1].decode()), text.encode())
    return data.decode("utf-8", "replace")


def _encodings(value: str) -> Iterator[Encoding]:
    yield _written(value)
    yield from (_base64(value.encode(), offset) for offset in range(3))


def _all_escaped(value: str) -> Iterator[str]:
    """Yield the encodings that escape every character."""
    data = value.encode()
    yield from (data.hex(), data.hex().upper())
    units = value.encode("utf-16-be").hex()
    for digits in (str.upper, str.lower):
        yield "".join(f"%{digits(f'{byte:02x}')}" for byte in data)
        yield "".join(f"\\x{digits(f'{byte:02x}')}" for byte in data)
        yield "".join(f"\\u{digits(units[at : at + 4])}" for at in range(0, len(units), 4))


# -- character by character: each as it is, or as one of the encoders writes it


def _written(value: str) -> Encoding:
    """Encode by character. Plain characters have one spelling in all encoders, any other has several."""
    pieces: list[tuple[bytes, ...]] = []
    position = 0
    for match in _PLAIN.finditer(value):
        pieces += _runs(value[position : match.start()])
        pieces.append((match[0].encode(),))
        position = match.end()
    pieces += _runs(value[position:])
    return tuple(pieces)


def _runs(text: str) -> Iterator[tuple[bytes, ...]]:
    """Make one piece of a repeated character: encoders write all alike, and trying mixtures is exponential."""
    for char, run in groupby(text):
        count = len(list(run))
        yield tuple(spelling * count for spelling in _spellings(char))


def _spellings(char: str) -> tuple[bytes, ...]:
    """Return the raw character first, then other spellings, without duplicates."""
    results = [char, *_percent(char), *_json(char), *_html(char), *_shell(char)]
    return tuple(dict.fromkeys(text.encode() for text in results))


def _percent(char: str) -> Iterator[str]:
    data = char.encode()
    if char == " ":
        yield "+"
    for digits in (str.upper, str.lower):
        yield "".join(f"%{digits(f'{byte:02x}')}" for byte in data)


def _json(char: str) -> Iterator[str]:
    """Escape as in a string of JSON, Python and the like; and that once more."""
    units = char.encode("utf-16-be").hex()
    escapes = [_JSON_ESCAPES[char]] if char in _JSON_ESCAPES else []
    for digits in (str.upper, str.lower):
        escapes.append("".join(f"\\u{digits(units[at : at + 4])}" for at in range(0, len(units), 4)))
        escapes.append("".join(f"\\x{digits(f'{byte:02x}')}" for byte in char.encode()))
        escapes.append(f"\\x{digits(f'{ord(char):02x}')}")
    for escape in escapes:
        yield escape
        yield escape.replace("\\", "\\\\").replace('"', '\\"')


def _html(char: str) -> Iterator[str]:
    if char in _HTML_NAMES:
        yield f"&{_HTML_NAMES[char]};"
    yield from (f"&#{ord(char)};", f"&#x{ord(char):x};", f"&#x{ord(char):X};", f"&#{ord(char):03};")


def _shell(char: str) -> Iterator[str]:
    yield from _SHELL_QUOTES if char == "'" else ()
    if char.isascii() and char.isprintable():
        yield f"\\{char}"


# -- base64


def _base64(data: bytes, offset: int) -> Encoding:
    """Encode the secret after `offset` bytes. Characters that share bits with a neighbour match any that fit."""
    unknown, rest = 8 * offset % _BITS, (offset + len(data)) % 3
    text = b2a_base64(bytes(offset) + data + bytes(-(offset + len(data)) % 3), newline=False).decode()
    text = text[8 * offset // _BITS : (8 * (offset + len(data)) + _BITS - 1) // _BITS]
    pieces = [_BASE64_SPELLINGS.get(char, (char.encode(),)) for char in text]
    if unknown:
        pieces[0] = _fitting(text[0], unknown, 0)
    if rest:
        pieces[-1] = _fitting(text[-1], 0, _BITS - 8 * (offset + len(data)) % _BITS)
    return _wrapped(pieces) if len(pieces) >= _WRAPPED_FROM else tuple(pieces)


def _wrapped(pieces: list[tuple[bytes, ...]]) -> Encoding:
    """Allow a line end after each piece."""
    return tuple(item for piece in pieces for item in (piece, _LINE_END))[:-1]


def _fitting(char: str, high: int, low: int) -> tuple[bytes, ...]:
    """Return the characters that differ from this one at most in the given number of highest or lowest bits."""
    index = _BASE64.index(char)
    base = index & ((1 << (_BITS - high)) - 1) & ~((1 << low) - 1)
    results = (base | above << (_BITS - high) | below for above, below in product(range(1 << high), range(1 << low)))
    return tuple(
        spelling for item in results for spelling in _BASE64_SPELLINGS.get(_BASE64[item], (_BASE64[item].encode(),))
    )
