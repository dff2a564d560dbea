"""Reading something of the file, all of it or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mulligan.formats.prodigy.grammar import GrammarRefused
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Node, Refusal, Scalar
from mulligan.language.shapes import Fields, Record

Read = TypeVar("Read")


def sound(record: Record, node: Node, label: str, translation: Translation) -> Fields:
    """What a mapping says. All that is wrong with it is noted, and then the reader stops."""
    form = record.read(node, label, translation.source)
    require(form, *form.node.entries, *record.required, translation=translation)
    return form


def require(form: Fields, *words: str, translation: Translation) -> None:
    """Stop where what one of these keys says was refused, or is not there: that is noted already."""
    if not all(word in form for word in words):
        raise Refusal(translation.source.problems[-1])


def understood(node: Scalar, read: Callable[[str], Read], translation: Translation, *, hint: str = "") -> Read:
    """What a text comes to that has a grammar of its own. Refused where it has another one."""
    try:
        return read(node.text)
    except GrammarRefused as refused:
        source = translation.source
        raise source.refuse_in("prodigy", refused.message, node, refused.offset, refused.length, hint=hint) from None
