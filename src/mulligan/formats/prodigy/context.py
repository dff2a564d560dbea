"""Where a translated command stands: the list it is added to, and the variables it can read."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as Dict
from typing import Any, NamedTuple

import msgspec

from mulligan.formats.expressions import step_path
from mulligan.formats.names import Names
from mulligan.formats.translation import Translation
from mulligan.language.text.nodes import Node, Source

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS_MAX = 60


# The names that `do` of a map binds.
ITEM_NAMES = frozenset({"item", "index", "output", "outputs"})


class Slot(NamedTuple):
    """A command's position in its list: its step name ("" without one) and the expression of its output.

    `output` is "" if no other command can read it.
    """

    name: str
    output: str


def call_at(slot: Slot, function: str) -> str:
    """The call of a command that the file does not have. In an item its attempts are not counted."""
    return f"mulligan.formats.prodigy.runtime{'' if slot.name else '.added'}:{function}"


def added_step(slot: Slot, function: str, args: Dict[str, Any]) -> dict[str, Any]:
    """The step for such a call."""
    return {"step": slot.name or None, "python": {"call": call_at(slot, function)}, "args": args}


class Slots:
    """The list that commands are added to. It numbers them, so each command takes one slot, once."""

    def take(self, title: str) -> Slot:
        """Take the next slot, for a command with this title."""
        raise NotImplementedError


class StepSlots(Slots):
    """The steps of the workflow, each with a unique name."""

    def __init__(self) -> None:
        self._names = Names.of_steps()
        # Steps that only an edge leads to: they are written after all others.
        self.edge_targets: list[dict[str, object]] = []

    def take(self, title: str) -> Slot:
        name = self._names.fit(step_name_of(title))
        return Slot(name, f"{step_path(name)}.output")


class ItemSlots(Slots):
    """The commands of an item. Their outputs are in `outputs`, in order."""

    def __init__(self) -> None:
        self._count = 0

    def take(self, title: str) -> Slot:
        self._count += 1
        return Slot("", f"outputs[{self._count - 1}]")


class HandlerSlots(Slots):
    """The commands of a handler. No other command can read their outputs."""

    def take(self, title: str) -> Slot:
        return Slot("", "")


class TranslatedSteps(NamedTuple):
    """Translated commands in order, and the context after them.

    In a list of steps each command has a `step`; in an item they are the entries of `do`.
    """

    commands: list[dict[str, Any]]
    context: Context


class Context(msgspec.Struct, frozen=True):
    """What applies to a command: its list, and the variables that it can read.

    `translate_step`: translates a step in any of its forms. It is here because handlers and checks contain steps.
    `variables`: a Prodigy variable (`shell.output`, `item`, `version`) → the expression of its value.
    `env`: likewise for the environment of the workflow. In shell scripts these are plain shell variables.
    `cwd`: the working folder, as a template; None is where the run was started.
    `is_regular`: in a regular workflow, where a plain Claude handler means three attempts.
    `tracks_changes`: the next step asks what this step changed.
    `env_commands`: variables that a shell command computes before it begins, each with its command.
    `arguments`: the expression of what Prodigy calls --args.
    `word_lists`: expressions of lists of words, which a shell splits where they are not quoted.
    `names`: names that an expression may use here without a field (`item`, `index`, `output`); see ITEM_NAMES.
    """

    slots: Slots
    translation: Translation
    translate_step: Callable[[Node, Context], TranslatedSteps]
    variables: Dict[str, str] = {}
    env: Dict[str, str] = {}
    cwd: str | None = None
    is_regular: bool = False
    names: frozenset[str] = frozenset()
    tracks_changes: bool = False
    word_lists: frozenset[str] = frozenset()
    env_commands: Dict[str, str] = {}
    arguments: str = "inputs.args"

    def with_variables(self, variables: Dict[str, str]) -> Context:
        """The same context with more variables."""
        return msgspec.structs.replace(self, variables={**self.variables, **variables})

    def commands_of(self, step: Node) -> list[dict[str, Any]]:
        """The commands of a step in this context."""
        return self.translate_step(step, self).commands

    def nested(self, **changes: Any) -> Context:
        """The context of the commands of a handler or a check."""
        return msgspec.structs.replace(self, slots=HandlerSlots(), **changes)

    def of_item(self, variables: Dict[str, str]) -> Context:
        """The context of the commands of an item."""
        inside = self.with_variables(variables)
        return msgspec.structs.replace(inside, slots=ItemSlots(), names=ITEM_NAMES, is_regular=False)

    @property
    def source(self) -> Source:
        return self.translation.source

    @property
    def is_in_steps(self) -> bool:
        return isinstance(self.slots, StepSlots)

    @property
    def is_nested(self) -> bool:
        return isinstance(self.slots, HandlerSlots)


def step_name_of(title: str) -> str:
    """Turn a title into a step name."""
    return _NOT_IN_NAMES.sub("_", title.strip()).strip("_-")[:_NAME_CHARS_MAX].rstrip("_-") or "step"
