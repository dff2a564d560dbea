"""HTML that cannot be broken into: text becomes markup only by being escaped, and `element` sees to it.

What steps, users and servers have written is shown as it is, but for what would deceive or command a reader: colours of
terminals go, other control characters and those that turn the direction of writing are spelled out.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from mulligan.core.model.formatting import escape_unprintable, strip_control_characters

_VOID = frozenset({"meta", "input", "br", "rect", "line", "circle", "path"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(said: object) -> Html:
    """Something as text of a page: whatever stands in it, it stays text."""
    if isinstance(said, Html):
        return said
    return Html(escape(escape_unprintable(strip_control_characters(str(said)).replace("\r\n", "\n"))))


def element(name: str, /, *inside: object, **attributes: Any) -> Html:
    """An element with its attributes and what is inside; `class_` is the class, `aria_label` is `aria-label`.

    An attribute that is None or False is left out, one that is True has no value.
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID and not inside:
        return Html(f"<{name}{said}>" if name in ("meta", "input", "br") else f"<{name}{said}/>")
    return Html(f"<{name}{said}>{''.join(map(text, inside))}</{name}>")


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(value)}"'


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after the other, each escaped unless it is markup."""
    return Html(text(between).join(text(part) for part in parts))
