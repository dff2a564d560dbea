"""Reading a mapping of the file, all of it or not at all."""

from __future__ import annotations

from mulligan.formats.translation import Translation
from mulligan.language.nodes import Node, Refusal
from mulligan.language.shapes import Fields, Record


def sound(record: Record, node: Node, label: str, translation: Translation) -> Fields:
    """What a mapping says. All that is wrong with it is noted, and then the reader stops."""
    form = record.read(node, label, translation.source)
    require(form, *form.node.entries, *record.required, translation=translation)
    return form


def require(form: Fields, *words: str, translation: Translation) -> None:
    """Stop where what one of these keys says was refused, or is not there: that is noted already."""
    if not all(word in form for word in words):
        raise Refusal(translation.source.problems[-1])
