"""Steps of Prodigy's into commands of ours: one after the other, each telling the next what it gave."""

from __future__ import annotations

from typing import Any, NamedTuple

from mulligan.formats.prodigy.places import Place
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Node, Sequence


class Translated(NamedTuple):
    """What a step of Prodigy's becomes: commands of ours in their order, and what is known after them.

    In a list of steps each command begins with its `step`; in an item they are the entries of `do`.
    """

    commands: list[dict[str, Any]]
    place: Place


def command(step: Node, place: Place, translation: Translation) -> Translated:
    """One step of Prodigy's, in any of its forms, as commands of ours (most often one)."""
    raise NotImplementedError


def commands(steps: Sequence, place: Place, translation: Translation) -> Translated:
    """A list of Prodigy's steps. An `on_failure:` or `validate:` that stands alone belongs to the step before it."""
    raise NotImplementedError
