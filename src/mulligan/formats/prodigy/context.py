"""Where a translated command stands: the list it is added to, and the variables it can read."""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict
from typing import NamedTuple

import msgspec

from mulligan.formats.expressions import step_path
from mulligan.formats.names import Names

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS_MAX = 60


# What `do` of a map binds.
ITEM_NAMES = frozenset({"item", "index", "output", "outputs"})


class Slot(NamedTuple):
    """The place of one command in its list: its name, where it has one, and the expression of what it gives.

    `output` is "" where nobody can read what it gives.
    """

    name: str
    output: str


class Slots:
    """The list that commands go into. It numbers them, so each command takes its spot once."""

    def take(self, title: str) -> Slot:
        """The next spot, for a command of that title."""
        raise NotImplementedError


class StepSlots(Slots):
    """The steps of the workflow: each has a name of its own."""

    def __init__(self) -> None:
        self._names = Names.of_steps()
        # Steps that stand behind all others, since only an edge leads to them.
        self.edge_targets: list[dict[str, object]] = []

    def take(self, title: str) -> Slot:
        name = self._names.fit(step_name_of(title))
        return Slot(name, f"{step_path(name)}.output")


class ItemSlots(Slots):
    """The commands of an item: what they give stands in `outputs`, in their order."""

    def __init__(self) -> None:
        self._count = 0

    def take(self, title: str) -> Slot:
        self._count += 1
        return Slot("", f"outputs[{self._count - 1}]")


class HandlerSlots(Slots):
    """The commands of a handler: nobody reads what they give."""

    def take(self, title: str) -> Slot:
        return Slot("", "")


class Context(msgspec.Struct, frozen=True):
    """What holds where a command stands. Each command hands on what the next one knows.

    `variables`: a variable of Prodigy's (`shell.output`, `item`, `version`) → the expression of ours that is its value.
    `env`: the variables of the workflow's environment, likewise. In shell text they are the shell's own.
    `cwd`: the folder, as a text of ours; None is where the run was started.
    `is_regular`: in a list of a regular workflow, where a Claude handler without more means three attempts.
    `tracks_changes`: the step behind this one asks what this one has changed.
    `names`: names of ours that hold here without a field (`item`, `index`, `output`); see ITEM_NAMES.
    """

    slots: Slots
    variables: Dict[str, str] = {}
    env: Dict[str, str] = {}
    cwd: str | None = None
    is_regular: bool = False
    names: frozenset[str] = frozenset()
    tracks_changes: bool = False

    def with_variables(self, variables: Dict[str, str]) -> Context:
        """The same place once more is known."""
        return msgspec.structs.replace(self, variables={**self.variables, **variables})

    @property
    def is_in_steps(self) -> bool:
        return isinstance(self.slots, StepSlots)


def step_name_of(title: str) -> str:
    """A title as the name of a step."""
    return _NOT_IN_NAMES.sub("_", title.strip()).strip("_-")[:_NAME_CHARS_MAX].rstrip("_-") or "step"
