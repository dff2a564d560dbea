"""HTML without injection: `element` escapes all text.

Text from steps, users and servers is shown unchanged, except that terminal colours are removed, and that other control
characters and those that change the direction of writing are spelled out.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from mulligan.core.model.text.formatting import escape_unprintable, strip_control_characters

_VOID = frozenset({"meta", "input", "br", "rect", "line", "circle", "path"})


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


def escape_text(content: object) -> Html:
    """Escape anything that is not markup already."""
    if isinstance(content, Html):
        return content
    return Html(escape(escape_unprintable(strip_control_characters(str(content)).replace("\r\n", "\n"))))


def element(name: str, /, *inside: object, **attributes: Any) -> Html:
    """An element with its attributes and content; `class_` is `class`, `aria_label` is `aria-label`.

    An attribute that is None or False is left out; one that is True has no value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID and not inside:
        return Html(f"<{name}{written}>" if name in ("meta", "input", "br") else f"<{name}{written}/>")
    return Html(f"<{name}{written}>{''.join(map(escape_text, inside))}</{name}>")


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape_text(value)}"'


def join_html(parts: Iterable[object], between: str = "") -> Html:
    """Join parts, each escaped unless it is markup."""
    return Html(escape_text(between).join(escape_text(part) for part in parts))
