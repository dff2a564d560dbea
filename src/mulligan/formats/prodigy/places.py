"""Where a command of Prodigy's stands: which list it goes into, and what its variables are there."""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict
from typing import NamedTuple

import msgspec

from mulligan.formats.expressions import step_path
from mulligan.formats.names import Names

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS_MAX = 60


# What `do` of a map binds.
ITEM_NAMES = frozenset({"item", "index", "output", "outputs"})


class Spot(NamedTuple):
    """The place of one command in its list: its name, where it has one, and the expression of what it gives.

    `output` is "" where nobody can read what it gives.
    """

    name: str
    output: str


class Row:
    """The list that commands go into. It numbers them, so each command takes its spot once."""

    def take(self, title: str) -> Spot:
        """The next spot, for a command of that title."""
        raise NotImplementedError


class Steps(Row):
    """The steps of the workflow: each has a name of its own."""

    def __init__(self) -> None:
        self._names = Names.of_steps()
        # Steps that stand behind all others, since only an edge leads to them.
        self.aside: list[dict[str, object]] = []

    def take(self, title: str) -> Spot:
        name = self._names.fit(fitting(title))
        return Spot(name, f"{step_path(name)}.output")


class Commands(Row):
    """The commands of an item: what they give stands in `outputs`, in their order."""

    def __init__(self) -> None:
        self._count = 0

    def take(self, title: str) -> Spot:
        self._count += 1
        return Spot("", f"outputs[{self._count - 1}]")


class Unread(Row):
    """The commands of a handler: nobody reads what they give."""

    def take(self, title: str) -> Spot:
        return Spot("", "")


class Place(msgspec.Struct, frozen=True):
    """What holds where a command stands. Each command hands on what the next one knows.

    `variables`: a variable of Prodigy's (`shell.output`, `item`, `version`) → the expression of ours that is its value.
    `env`: the variables of the workflow's environment, likewise. In shell text they are the shell's own.
    `cwd`: the folder, as a text of ours; None is where the run was started.
    `is_regular`: in a list of a regular workflow, where a Claude handler without more means three attempts.
    `is_watched`: the step behind this one asks what this one has changed.
    `names`: names of ours that hold here without a field (`item`, `index`, `output`); see ITEM_NAMES.
    """

    row: Row
    variables: Dict[str, str] = {}
    env: Dict[str, str] = {}
    cwd: str | None = None
    is_regular: bool = False
    names: frozenset[str] = frozenset()
    is_watched: bool = False

    def knowing(self, variables: Dict[str, str]) -> Place:
        """The same place once more is known."""
        return msgspec.structs.replace(self, variables={**self.variables, **variables})

    @property
    def is_in_steps(self) -> bool:
        return isinstance(self.row, Steps)


def fitting(title: str) -> str:
    """A title as the name of a step."""
    return _UNFIT.sub("_", title.strip()).strip("_-")[:_NAME_CHARS_MAX].rstrip("_-") or "step"
