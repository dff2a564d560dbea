"""An upper estimate of the width of text, so that no box is too small for its text in any common font."""

from __future__ import annotations

import unicodedata

# Widths as shares of the font size, measured on the wider of the usual sans-serif fonts.
_NARROW = dict.fromkeys("iljI.,:;'|!", 0.36) | dict.fromkeys('ftr()[]{}/\\- "·', 0.44)
_WIDE = dict.fromkeys("mwMW@%…", 0.98) | dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ&_+=<>~^#", 0.72)
_WIDTHS = _NARROW | _WIDE
_USUAL = 0.62
_FULL = 1.05


def text_width(text: str, size: float) -> float:
    """The width that `text` needs on one line at font size `size`."""
    return size * sum(_WIDTHS.get(letter) or _width_of_other(letter) for letter in text)


def truncate_to_width(text: str, size: float, width_max: float) -> str:
    """`text`, cut with `…` if it would be wider than `width_max`."""
    if text_width(text, size) <= width_max:
        return text
    room = width_max - text_width("…", size)
    kept = 0
    for letter in text:
        room -= text_width(letter, size)
        if room < 0:
            break
        kept += 1
    return text[:kept].rstrip() + "…"


def _width_of_other(letter: str) -> float:
    if letter.isascii():
        return _USUAL
    if unicodedata.combining(letter):
        return 0.0
    return _FULL if unicodedata.east_asian_width(letter) in "WFA" else _WIDTHS["M"]
