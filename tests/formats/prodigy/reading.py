"""Prodigy's text in, our plain tree out."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.errors import LanguageError
from mulligan.formats.prodigy.context import ITEM_NAMES, Context, ItemSlots, Slots, StepSlots
from mulligan.formats.prodigy.steps import translate_step, translate_steps
from mulligan.formats.translation import Translation, made
from mulligan.language.text.document import parse
from mulligan.language.text.nodes import Refusal, Sequence, Source, plain

# Prodigy starts its agent so that it never asks for permission.
UNASKED = {"skip_permissions": True}


def context(slots: Slots, variables: dict[str, str] | None = None, **more: Any) -> Context:
    """Where commands stand in a file without a text."""
    return Context(slots, Translation(Source("", "flow.yml")), translate_step, variables or {}, **more)


def steps(text: str, place: Context | None = None) -> list[dict[str, Any]]:
    """The steps of ours that a list of Prodigy's becomes, and behind them what only an edge leads to."""
    source = Source(text, "flow.yml")
    place = place or context(StepSlots(), is_regular=True)
    place = msgspec.structs.replace(place, translation=Translation(source))
    try:
        root = parse(source)
    except Refusal as refusal:
        raise LanguageError([refusal.problem]) from None
    assert isinstance(root, Sequence)
    found = translate_steps(root, place).commands
    if source.problems:
        raise LanguageError(source.problems)
    aside = place.slots.edge_targets if isinstance(place.slots, StepSlots) else []
    tree: list[dict[str, Any]] = plain(made([*found, *aside], root))
    return tree


def step(text: str) -> dict[str, Any]:
    """The one step of ours that a list becomes, without its name."""
    (found,) = steps(text)
    return {key: value for key, value in found.items() if key != "step"}


def item_commands(text: str) -> list[dict[str, Any]]:
    """The entries of `do` that a list becomes, where there is an item."""
    return steps(text, context(ItemSlots(), {"item": "item"}, names=ITEM_NAMES))
