"""Lists of Prodigy's steps: what stands alone in one belongs to the step before it."""

from __future__ import annotations

from mulligan.formats.prodigy.actions import is_prompt
from mulligan.formats.translation import Translation, made, mapping
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence

# What belongs to the step before it, where it stands alone in the list.
_ATTACHED = ("on_failure", "validate", "on_success", "step_validate")


def joined(steps: Sequence, translation: Translation, *, is_handlers: bool = False) -> list[Node]:
    """The steps of a list, each with what stands behind it and belongs to it."""
    found: list[Node] = []
    for step in steps.items:
        with translation.source.noting:
            if isinstance(step, Mapping) and step.entries and all(word in _ATTACHED for word in step.entries):
                _attach(step, found, translation, is_handlers)
            else:
                found.append(step)
    return found


def _attach(step: Mapping, found: list[Node], translation: Translation, is_handlers: bool) -> None:
    word = next(iter(step.entries))
    if not found:
        message = f"'{word}' stands alone, and there is no step before it that it belongs to"
        raise translation.source.refuse("prodigy", message, step.key(word))
    if not is_step(found[-1]):
        return  # It is refused for itself, when it is read.
    owner = as_mapping(found[-1], is_handlers=is_handlers)
    for word, entry in step.entries.items():
        if word in owner.entries:
            message = f"the step before it has '{word}' already"
            raise translation.source.refuse("prodigy", message, entry[0])
    joint = Mapping(owner.line, owner.column)
    joint.entries = {**owner.entries, **step.entries}
    found[-1] = joint


def is_step(node: Node) -> bool:
    """Whether it has the form of a step: a mapping, or words."""
    return isinstance(node, Mapping) or (
        isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip() != ""
    )


def as_mapping(step: Node, *, is_handlers: bool = False) -> Mapping:
    """A step that is a text, in the form that can have keys. In a handler it is the shell's, unless it has a slash."""
    if isinstance(step, Mapping):
        return step
    assert isinstance(step, Scalar)
    if is_handlers and not is_prompt(step):
        return mapping({"shell": step}, step)
    return mapping({"claude": made(slashed(step.text), step)}, step)


def slashed(words: str) -> str:
    """A command of Claude's as Claude knows it."""
    return words if words.lstrip().startswith("/") else f"/{words.lstrip()}"
