"""How wide text is, roughly and on the safe side, so that no box is too small for its words in any common font."""

from __future__ import annotations

import unicodedata

# Shares of the font size, for the wider of the usual sans-serif fonts.
_NARROW = dict.fromkeys("iljI.,:;'|!", 0.36) | dict.fromkeys('ftr()[]{}/\\- "·', 0.44)
_WIDE = dict.fromkeys("mwMW@%…", 0.98) | dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ&_+=<>~^#", 0.72)
_WIDTHS = _NARROW | _WIDE
_USUAL = 0.62
_FULL = 1.05


def width(text: str, size: float) -> float:
    """The room that `text` needs in one line of letters of `size`."""
    return size * sum(_WIDTHS.get(letter) or _other(letter) for letter in text)


def fitted(text: str, size: float, width_max: float) -> str:
    """`text`, cut with `…` where it would be wider than `width_max`."""
    if width(text, size) <= width_max:
        return text
    room = width_max - width("…", size)
    kept = 0
    for letter in text:
        room -= width(letter, size)
        if room < 0:
            break
        kept += 1
    return text[:kept].rstrip() + "…"


def _other(letter: str) -> float:
    if letter.isascii():
        return _USUAL
    if unicodedata.combining(letter):
        return 0.0
    return _FULL if unicodedata.east_asian_width(letter) in "WFA" else _WIDTHS["M"]
