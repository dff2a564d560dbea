"""The keys of places: `build`, `check[3]`, `check[3].0`, `build.on_failure@2.0`."""

from __future__ import annotations

import hashlib
import re

from mulligan.core.model.text.lazy_regex import lazy_regex

# A file name has at most 255 bytes, and ours get suffixes.
_NAME_CHARS_MAX = 160
_PLAIN = lazy_regex(r"[A-Za-z0-9_@\[\]-][A-Za-z0-9_.@\[\]-]*", re.ASCII)
_OTHER = lazy_regex(r"[^A-Za-z0-9_.@\[\]-]+", re.ASCII)


def step_name(key: str) -> str:
    """The step that a place belongs to."""
    return key.partition(".")[0].partition("[")[0]


def item_key(step: str, index: int) -> str:
    """The key of an item of a map step."""
    return f"{step}[{index}]"


def lasting_key(key: str) -> str:
    """The place that outlives a command: the item for its first command, otherwise the place itself."""
    return key.removesuffix(".0") if key.endswith("].0") else key


def undo_key(step: str, visit: int) -> str:
    """The key of the undo of a visit."""
    return f"{step}.undo@{visit}"


def is_at_or_below(key: str, whole: str) -> bool:
    """Whether a place is `whole` or below it: an item, a command, a handler of these."""
    return key == whole or key.startswith((f"{whole}[", f"{whole}."))


def file_name(place: str) -> str:
    """A file name for the place: its key if possible, otherwise with other characters percent-encoded."""
    if len(place) <= _NAME_CHARS_MAX and _PLAIN.fullmatch(place):
        return place
    spelled = _OTHER.sub(_percent_encoded, place)
    if spelled.startswith("."):
        spelled = "%2E" + spelled[1:]
    if len(spelled) <= _NAME_CHARS_MAX:
        return spelled
    digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{spelled[: _NAME_CHARS_MAX - 17]}%{digest}"


def _percent_encoded(others: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in others[0].encode("utf-8", "surrogatepass"))
