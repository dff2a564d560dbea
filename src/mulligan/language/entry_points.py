"""The actions that installed packages offer. Loaded only by `plugins`: looking through all packages takes its time."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from mulligan.plugins import GROUP, ActionPlugin, Unusable


def offered() -> dict[str, tuple[EntryPoint, ...]]:
    """What there is under each name; nothing of it is loaded."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def loaded(name: str, entries: Iterable[EntryPoint]) -> tuple[str, ActionPlugin]:
    """The package of that action and what it says of it; Unusable, with the package's name, where it cannot be had."""
    first, *others = sorted(entries, key=_package)
    if others:
        raise Unusable(f"two packages have an action '{name}': {_package(first)} and {_package(others[0])}")
    try:
        definition = first.load()
    except Exception as error:  # it is somebody else's code, and may do anything
        raise Unusable(f"the action '{name}' of {_package(first)} does not load: {_in_words(error)}") from None
    if not isinstance(definition, ActionPlugin):
        kind = type(definition).__name__
        raise Unusable(f"the action '{name}' of {_package(first)} is a {kind}, and no mulligan.ActionPlugin")
    return first.dist.name if first.dist else first.module, definition


def _package(entry: EntryPoint) -> str:
    return f"'{entry.dist.name} {entry.dist.version}'" if entry.dist else f"the module '{entry.module}'"


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300].rstrip(": ")
